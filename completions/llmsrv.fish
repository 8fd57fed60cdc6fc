# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_llmsrv_global_optspecs
    string join \n host= p/port= models= set= config= env-file= q/quiet v color= h/help V/version
end

function __fish_llmsrv_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_llmsrv_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_llmsrv_using_subcommand
    set -l cmd (__fish_llmsrv_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c llmsrv -n "__fish_llmsrv_needs_command" -l host -d 'Address of the server: host, :port, host:port, [v6]:port or a URL' -r
complete -c llmsrv -n "__fish_llmsrv_needs_command" -s p -l port -d 'Port of the server' -r
complete -c llmsrv -n "__fish_llmsrv_needs_command" -l models -d 'Folder of the models' -r -f -a "(__fish_complete_directories)"
complete -c llmsrv -n "__fish_llmsrv_needs_command" -l set -d 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)' -r
complete -c llmsrv -n "__fish_llmsrv_needs_command" -l config -d 'Settings file instead of the usual one' -r -F
complete -c llmsrv -n "__fish_llmsrv_needs_command" -l env-file -d 'Also read NAME=value lines from this file; the environment is stronger' -r -F
complete -c llmsrv -n "__fish_llmsrv_needs_command" -l color -d 'Colours' -r -f -a "auto\t'On terminals, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c llmsrv -n "__fish_llmsrv_needs_command" -s q -l quiet -d 'Say nothing but errors'
complete -c llmsrv -n "__fish_llmsrv_needs_command" -s v -d 'Log more: -v debug, -vv trace'
complete -c llmsrv -n "__fish_llmsrv_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c llmsrv -n "__fish_llmsrv_needs_command" -s V -l version -d 'Print version'
complete -c llmsrv -n "__fish_llmsrv_needs_command" -f -a "serve" -d 'Serve models over HTTP'
complete -c llmsrv -n "__fish_llmsrv_needs_command" -f -a "run" -d 'Chat with a model, or ask it one thing'
complete -c llmsrv -n "__fish_llmsrv_needs_command" -f -a "list" -d 'List the models'
complete -c llmsrv -n "__fish_llmsrv_needs_command" -f -a "ls" -d 'List the models'
complete -c llmsrv -n "__fish_llmsrv_needs_command" -f -a "show" -d 'Show what is known of a model'
complete -c llmsrv -n "__fish_llmsrv_needs_command" -f -a "create" -d 'Make a model from a Modelfile, another model or model files'
complete -c llmsrv -n "__fish_llmsrv_needs_command" -f -a "ps" -d 'List the loaded models'
complete -c llmsrv -n "__fish_llmsrv_needs_command" -f -a "stop" -d 'Unload a model from memory, or stop the server'
complete -c llmsrv -n "__fish_llmsrv_needs_command" -f -a "status" -d 'Show what runs, where, and what it has loaded'
complete -c llmsrv -n "__fish_llmsrv_needs_command" -f -a "test" -d 'Check the running server, step by step'
complete -c llmsrv -n "__fish_llmsrv_needs_command" -f -a "examples" -d 'Print requests that work as they are, for curl, Python and JavaScript'
complete -c llmsrv -n "__fish_llmsrv_needs_command" -f -a "pull" -d 'Bring models in from a registry or the Hugging Face hub'
complete -c llmsrv -n "__fish_llmsrv_needs_command" -f -a "push" -d 'Send a model to its registry'
complete -c llmsrv -n "__fish_llmsrv_needs_command" -f -a "cp" -d 'Copy a model under a new name'
complete -c llmsrv -n "__fish_llmsrv_needs_command" -f -a "rm" -d 'Remove models'
complete -c llmsrv -n "__fish_llmsrv_needs_command" -f -a "logkit" -d 'Log commands and calls, and look at what was logged'
complete -c llmsrv -n "__fish_llmsrv_needs_command" -f -a "bench" -d 'Measure how fast models run here, beside the machine\'s limits and other engines'
complete -c llmsrv -n "__fish_llmsrv_needs_command" -f -a "key" -d 'Make, list and remove the keys of those who may call the server'
complete -c llmsrv -n "__fish_llmsrv_needs_command" -f -a "config" -d 'Print every setting, its value and where it came from'
complete -c llmsrv -n "__fish_llmsrv_needs_command" -f -a "completions" -d 'Print the script that makes a shell complete commands and model names'
complete -c llmsrv -n "__fish_llmsrv_needs_command" -f -a "version" -d 'Print versions of the program and of the running server'
complete -c llmsrv -n "__fish_llmsrv_needs_command" -f -a "generate" -d 'Write man pages, completions and the settings reference'
complete -c llmsrv -n "__fish_llmsrv_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand serve" -l preload -d 'Models to load at the start, between commas' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand serve" -l keep-alive -d 'How long an idle model stays loaded, such as 30m; -1 = forever' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand serve" -l parallel -d 'Requests one model answers at the same time' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand serve" -l host -d 'Address of the server: host, :port, host:port, [v6]:port or a URL' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand serve" -s p -l port -d 'Port of the server' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand serve" -l models -d 'Folder of the models' -r -f -a "(__fish_complete_directories)"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand serve" -l set -d 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand serve" -l config -d 'Settings file instead of the usual one' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand serve" -l env-file -d 'Also read NAME=value lines from this file; the environment is stronger' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand serve" -l color -d 'Colours' -r -f -a "auto\t'On terminals, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand serve" -s q -l quiet -d 'Say nothing but errors'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand serve" -s v -d 'Log more: -v debug, -vv trace'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand serve" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand run" -l system -d 'System prompt' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand run" -l format -d 'Form of the answer: `json`, or a JSON Schema' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand run" -s o -l option -d 'Set an option of the model, such as temperature=0 (may be repeated)' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand run" -l keepalive -d 'How long the model stays loaded afterwards, such as 30m; -1 = forever' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand run" -l think -d 'Let the model think first' -r -f -a "true\t'Yes'
false\t'No'
low\t'A little'
medium\t'Some'
high\t'A lot'
max\t'As much as it can'"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand run" -l host -d 'Address of the server: host, :port, host:port, [v6]:port or a URL' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand run" -s p -l port -d 'Port of the server' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand run" -l models -d 'Folder of the models' -r -f -a "(__fish_complete_directories)"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand run" -l set -d 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand run" -l config -d 'Settings file instead of the usual one' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand run" -l env-file -d 'Also read NAME=value lines from this file; the environment is stronger' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand run" -l color -d 'Colours' -r -f -a "auto\t'On terminals, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand run" -l nothink -d 'Do not let the model think first'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand run" -l hidethinking -d 'Do not show what the model thinks'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand run" -l nowordwrap -d 'Do not wrap lines at the width of the terminal'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand run" -l verbose -d 'Print timings after the answer'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand run" -s q -l quiet -d 'Say nothing but errors'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand run" -s v -d 'Log more: -v debug, -vv trace'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand list" -l host -d 'Address of the server: host, :port, host:port, [v6]:port or a URL' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand list" -s p -l port -d 'Port of the server' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand list" -l models -d 'Folder of the models' -r -f -a "(__fish_complete_directories)"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand list" -l set -d 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand list" -l config -d 'Settings file instead of the usual one' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand list" -l env-file -d 'Also read NAME=value lines from this file; the environment is stronger' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand list" -l color -d 'Colours' -r -f -a "auto\t'On terminals, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand list" -l json -d 'Print JSON'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand list" -s q -l quiet -d 'Say nothing but errors'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand list" -s v -d 'Log more: -v debug, -vv trace'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand ls" -l host -d 'Address of the server: host, :port, host:port, [v6]:port or a URL' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand ls" -s p -l port -d 'Port of the server' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand ls" -l models -d 'Folder of the models' -r -f -a "(__fish_complete_directories)"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand ls" -l set -d 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand ls" -l config -d 'Settings file instead of the usual one' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand ls" -l env-file -d 'Also read NAME=value lines from this file; the environment is stronger' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand ls" -l color -d 'Colours' -r -f -a "auto\t'On terminals, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand ls" -l json -d 'Print JSON'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand ls" -s q -l quiet -d 'Say nothing but errors'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand ls" -s v -d 'Log more: -v debug, -vv trace'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand ls" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand show" -l host -d 'Address of the server: host, :port, host:port, [v6]:port or a URL' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand show" -s p -l port -d 'Port of the server' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand show" -l models -d 'Folder of the models' -r -f -a "(__fish_complete_directories)"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand show" -l set -d 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand show" -l config -d 'Settings file instead of the usual one' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand show" -l env-file -d 'Also read NAME=value lines from this file; the environment is stronger' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand show" -l color -d 'Colours' -r -f -a "auto\t'On terminals, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand show" -l modelfile -d 'Only the Modelfile'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand show" -l parameters -d 'Only the parameters'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand show" -l template -d 'Only the prompt template'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand show" -l system -d 'Only the system prompt'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand show" -l license -d 'Only the licence'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand show" -l verbose -d 'Also all metadata and tensors'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand show" -l json -d 'Print JSON'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand show" -s q -l quiet -d 'Say nothing but errors'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand show" -s v -d 'Log more: -v debug, -vv trace'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand show" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand create" -s f -l file -d 'The Modelfile; `-` is standard input [default: Modelfile, unless --from is given]' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand create" -l from -d 'A model, a GGUF file or a folder, in place of what the Modelfile says' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand create" -s Q -l quantize -d 'Quantize the weights: Q4_K_M, Q8_0, F16, ...' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand create" -l host -d 'Address of the server: host, :port, host:port, [v6]:port or a URL' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand create" -s p -l port -d 'Port of the server' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand create" -l models -d 'Folder of the models' -r -f -a "(__fish_complete_directories)"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand create" -l set -d 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand create" -l config -d 'Settings file instead of the usual one' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand create" -l env-file -d 'Also read NAME=value lines from this file; the environment is stronger' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand create" -l color -d 'Colours' -r -f -a "auto\t'On terminals, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand create" -l copy -d 'Copy model files where they could be linked'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand create" -l json -d 'Print the steps as JSON lines'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand create" -s q -l quiet -d 'Say nothing but errors'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand create" -s v -d 'Log more: -v debug, -vv trace'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand create" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand ps" -l host -d 'Address of the server: host, :port, host:port, [v6]:port or a URL' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand ps" -s p -l port -d 'Port of the server' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand ps" -l models -d 'Folder of the models' -r -f -a "(__fish_complete_directories)"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand ps" -l set -d 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand ps" -l config -d 'Settings file instead of the usual one' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand ps" -l env-file -d 'Also read NAME=value lines from this file; the environment is stronger' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand ps" -l color -d 'Colours' -r -f -a "auto\t'On terminals, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand ps" -l json -d 'Print JSON'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand ps" -s q -l quiet -d 'Say nothing but errors'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand ps" -s v -d 'Log more: -v debug, -vv trace'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand ps" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand stop" -l host -d 'Address of the server: host, :port, host:port, [v6]:port or a URL' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand stop" -s p -l port -d 'Port of the server' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand stop" -l models -d 'Folder of the models' -r -f -a "(__fish_complete_directories)"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand stop" -l set -d 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand stop" -l config -d 'Settings file instead of the usual one' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand stop" -l env-file -d 'Also read NAME=value lines from this file; the environment is stronger' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand stop" -l color -d 'Colours' -r -f -a "auto\t'On terminals, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand stop" -s q -l quiet -d 'Say nothing but errors'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand stop" -s v -d 'Log more: -v debug, -vv trace'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand stop" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand status" -l host -d 'Address of the server: host, :port, host:port, [v6]:port or a URL' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand status" -s p -l port -d 'Port of the server' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand status" -l models -d 'Folder of the models' -r -f -a "(__fish_complete_directories)"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand status" -l set -d 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand status" -l config -d 'Settings file instead of the usual one' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand status" -l env-file -d 'Also read NAME=value lines from this file; the environment is stronger' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand status" -l color -d 'Colours' -r -f -a "auto\t'On terminals, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand status" -l json -d 'Print it as JSON'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand status" -s q -l quiet -d 'Say nothing but errors'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand status" -s v -d 'Log more: -v debug, -vv trace'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand status" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand test" -l model -d 'The model that answers' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand test" -l host -d 'Address of the server: host, :port, host:port, [v6]:port or a URL' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand test" -s p -l port -d 'Port of the server' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand test" -l models -d 'Folder of the models' -r -f -a "(__fish_complete_directories)"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand test" -l set -d 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand test" -l config -d 'Settings file instead of the usual one' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand test" -l env-file -d 'Also read NAME=value lines from this file; the environment is stronger' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand test" -l color -d 'Colours' -r -f -a "auto\t'On terminals, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand test" -l json -d 'Print the results as JSON'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand test" -s q -l quiet -d 'Say nothing but errors'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand test" -s v -d 'Log more: -v debug, -vv trace'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand test" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand examples" -s l -l language -d 'Only one language' -r -f -a "curl\t'The shell with curl'
python\t'Python, standard library only'
js\t'JavaScript for Node.js 18 and browsers'"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand examples" -l model -d 'The model in the examples' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand examples" -l host -d 'Address of the server: host, :port, host:port, [v6]:port or a URL' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand examples" -s p -l port -d 'Port of the server' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand examples" -l models -d 'Folder of the models' -r -f -a "(__fish_complete_directories)"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand examples" -l set -d 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand examples" -l config -d 'Settings file instead of the usual one' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand examples" -l env-file -d 'Also read NAME=value lines from this file; the environment is stronger' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand examples" -l color -d 'Colours' -r -f -a "auto\t'On terminals, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand examples" -l json -d 'Print them as JSON'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand examples" -s q -l quiet -d 'Say nothing but errors'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand examples" -s v -d 'Log more: -v debug, -vv trace'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand examples" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand pull" -l host -d 'Address of the server: host, :port, host:port, [v6]:port or a URL' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand pull" -s p -l port -d 'Port of the server' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand pull" -l models -d 'Folder of the models' -r -f -a "(__fish_complete_directories)"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand pull" -l set -d 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand pull" -l config -d 'Settings file instead of the usual one' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand pull" -l env-file -d 'Also read NAME=value lines from this file; the environment is stronger' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand pull" -l color -d 'Colours' -r -f -a "auto\t'On terminals, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand pull" -l insecure -d 'Allow plain http and unverified certificates for a host of a private network'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand pull" -l json -d 'Print each step as a line of JSON'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand pull" -s q -l quiet -d 'Say nothing but errors'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand pull" -s v -d 'Log more: -v debug, -vv trace'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand pull" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand push" -l host -d 'Address of the server: host, :port, host:port, [v6]:port or a URL' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand push" -s p -l port -d 'Port of the server' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand push" -l models -d 'Folder of the models' -r -f -a "(__fish_complete_directories)"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand push" -l set -d 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand push" -l config -d 'Settings file instead of the usual one' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand push" -l env-file -d 'Also read NAME=value lines from this file; the environment is stronger' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand push" -l color -d 'Colours' -r -f -a "auto\t'On terminals, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand push" -l insecure -d 'Allow plain http and unverified certificates for a host of a private network'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand push" -l json -d 'Print each step as a line of JSON'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand push" -s q -l quiet -d 'Say nothing but errors'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand push" -s v -d 'Log more: -v debug, -vv trace'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand push" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand cp" -l host -d 'Address of the server: host, :port, host:port, [v6]:port or a URL' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand cp" -s p -l port -d 'Port of the server' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand cp" -l models -d 'Folder of the models' -r -f -a "(__fish_complete_directories)"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand cp" -l set -d 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand cp" -l config -d 'Settings file instead of the usual one' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand cp" -l env-file -d 'Also read NAME=value lines from this file; the environment is stronger' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand cp" -l color -d 'Colours' -r -f -a "auto\t'On terminals, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand cp" -s q -l quiet -d 'Say nothing but errors'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand cp" -s v -d 'Log more: -v debug, -vv trace'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand cp" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand rm" -l host -d 'Address of the server: host, :port, host:port, [v6]:port or a URL' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand rm" -s p -l port -d 'Port of the server' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand rm" -l models -d 'Folder of the models' -r -f -a "(__fish_complete_directories)"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand rm" -l set -d 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand rm" -l config -d 'Settings file instead of the usual one' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand rm" -l env-file -d 'Also read NAME=value lines from this file; the environment is stronger' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand rm" -l color -d 'Colours' -r -f -a "auto\t'On terminals, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand rm" -s q -l quiet -d 'Say nothing but errors'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand rm" -s v -d 'Log more: -v debug, -vv trace'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand rm" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand logkit" -l host -d 'Address of the server: host, :port, host:port, [v6]:port or a URL' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand logkit" -s p -l port -d 'Port of the server' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand logkit" -l models -d 'Folder of the models' -r -f -a "(__fish_complete_directories)"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand logkit" -l set -d 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand logkit" -l config -d 'Settings file instead of the usual one' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand logkit" -l env-file -d 'Also read NAME=value lines from this file; the environment is stronger' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand logkit" -l color -d 'Colours' -r -f -a "auto\t'On terminals, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand logkit" -s q -l quiet -d 'Say nothing but errors'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand logkit" -s v -d 'Log more: -v debug, -vv trace'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand bench" -l pp -d 'Lengths of prompts to read' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand bench" -s n -l tg -d 'Numbers of tokens to generate' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand bench" -s d -l depth -d 'Tokens that come before' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand bench" -s b -l batch -d 'Sequences to generate together' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand bench" -s r -l rounds -d 'Rounds of every test' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand bench" -s t -l threads -d 'Threads of the arithmetic [default: the setting, or one for each core]' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand bench" -l peer -d 'Measure this command, too; {model}, {threads}, {pp}, {tg}, {depth} and {batch} are replaced' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand bench" -l peer-python -d 'Measure llama.cpp, too, through the package llama-cpp-python of this interpreter' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand bench" -l make-model -d 'Write a model with random weights: 0.5b, 1b, 1.7b, 8b or tiny, or one of these with changes (1b:layers=4,vocab=4096)' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand bench" -s Q -l quantize -d 'With --make-model: the type of the weights' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand bench" -s o -l output -d 'With --make-model: the file' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand bench" -l ready -d 'Load this file, compute one token, print the resident bytes' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand bench" -l host -d 'Address of the server: host, :port, host:port, [v6]:port or a URL' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand bench" -s p -l port -d 'Port of the server' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand bench" -l models -d 'Folder of the models' -r -f -a "(__fish_complete_directories)"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand bench" -l set -d 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand bench" -l config -d 'Settings file instead of the usual one' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand bench" -l env-file -d 'Also read NAME=value lines from this file; the environment is stronger' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand bench" -l color -d 'Colours' -r -f -a "auto\t'On terminals, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand bench" -l quick -d 'Only pp and tg: no first token, no new process, no HTTP'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand bench" -l peer-unpacked -d 'With --peer-python: also without packing the weights, which is faster for some models'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand bench" -l limits -d 'Measure the limits of the machine and nothing else'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand bench" -l json -d 'Print one JSON document'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand bench" -l markdown -d 'Print a table for a document'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand bench" -s q -l quiet -d 'Say nothing but errors'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand bench" -s v -d 'Log more: -v debug, -vv trace'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand bench" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and not __fish_seen_subcommand_from add list ls rm help" -l host -d 'Address of the server: host, :port, host:port, [v6]:port or a URL' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and not __fish_seen_subcommand_from add list ls rm help" -s p -l port -d 'Port of the server' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and not __fish_seen_subcommand_from add list ls rm help" -l models -d 'Folder of the models' -r -f -a "(__fish_complete_directories)"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and not __fish_seen_subcommand_from add list ls rm help" -l set -d 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and not __fish_seen_subcommand_from add list ls rm help" -l config -d 'Settings file instead of the usual one' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and not __fish_seen_subcommand_from add list ls rm help" -l env-file -d 'Also read NAME=value lines from this file; the environment is stronger' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and not __fish_seen_subcommand_from add list ls rm help" -l color -d 'Colours' -r -f -a "auto\t'On terminals, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and not __fish_seen_subcommand_from add list ls rm help" -s q -l quiet -d 'Say nothing but errors'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and not __fish_seen_subcommand_from add list ls rm help" -s v -d 'Log more: -v debug, -vv trace'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and not __fish_seen_subcommand_from add list ls rm help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and not __fish_seen_subcommand_from add list ls rm help" -f -a "add" -d 'Make a key and print it; it cannot be shown again'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and not __fish_seen_subcommand_from add list ls rm help" -f -a "list" -d 'List the keys'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and not __fish_seen_subcommand_from add list ls rm help" -f -a "ls" -d 'List the keys'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and not __fish_seen_subcommand_from add list ls rm help" -f -a "rm" -d 'Remove a key: it stops working'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and not __fish_seen_subcommand_from add list ls rm help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from add" -l role -d 'What it allows' -r -f -a "infer\t'Ask models and list them'
manage\t'Also pull, push, create, copy and delete models'
admin\t'Everything'"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from add" -l host -d 'Address of the server: host, :port, host:port, [v6]:port or a URL' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from add" -s p -l port -d 'Port of the server' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from add" -l models -d 'Folder of the models' -r -f -a "(__fish_complete_directories)"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from add" -l set -d 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from add" -l config -d 'Settings file instead of the usual one' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from add" -l env-file -d 'Also read NAME=value lines from this file; the environment is stronger' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from add" -l color -d 'Colours' -r -f -a "auto\t'On terminals, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from add" -s q -l quiet -d 'Say nothing but errors'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from add" -s v -d 'Log more: -v debug, -vv trace'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from add" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from list" -l host -d 'Address of the server: host, :port, host:port, [v6]:port or a URL' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from list" -s p -l port -d 'Port of the server' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from list" -l models -d 'Folder of the models' -r -f -a "(__fish_complete_directories)"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from list" -l set -d 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from list" -l config -d 'Settings file instead of the usual one' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from list" -l env-file -d 'Also read NAME=value lines from this file; the environment is stronger' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from list" -l color -d 'Colours' -r -f -a "auto\t'On terminals, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from list" -l json -d 'Print JSON'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from list" -s q -l quiet -d 'Say nothing but errors'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from list" -s v -d 'Log more: -v debug, -vv trace'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from ls" -l host -d 'Address of the server: host, :port, host:port, [v6]:port or a URL' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from ls" -s p -l port -d 'Port of the server' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from ls" -l models -d 'Folder of the models' -r -f -a "(__fish_complete_directories)"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from ls" -l set -d 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from ls" -l config -d 'Settings file instead of the usual one' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from ls" -l env-file -d 'Also read NAME=value lines from this file; the environment is stronger' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from ls" -l color -d 'Colours' -r -f -a "auto\t'On terminals, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from ls" -l json -d 'Print JSON'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from ls" -s q -l quiet -d 'Say nothing but errors'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from ls" -s v -d 'Log more: -v debug, -vv trace'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from ls" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from rm" -l host -d 'Address of the server: host, :port, host:port, [v6]:port or a URL' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from rm" -s p -l port -d 'Port of the server' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from rm" -l models -d 'Folder of the models' -r -f -a "(__fish_complete_directories)"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from rm" -l set -d 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from rm" -l config -d 'Settings file instead of the usual one' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from rm" -l env-file -d 'Also read NAME=value lines from this file; the environment is stronger' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from rm" -l color -d 'Colours' -r -f -a "auto\t'On terminals, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from rm" -s q -l quiet -d 'Say nothing but errors'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from rm" -s v -d 'Log more: -v debug, -vv trace'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from rm" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from help" -f -a "add" -d 'Make a key and print it; it cannot be shown again'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from help" -f -a "list" -d 'List the keys'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from help" -f -a "rm" -d 'Remove a key: it stops working'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand key; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand config; and not __fish_seen_subcommand_from check path help" -l host -d 'Address of the server: host, :port, host:port, [v6]:port or a URL' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand config; and not __fish_seen_subcommand_from check path help" -s p -l port -d 'Port of the server' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand config; and not __fish_seen_subcommand_from check path help" -l models -d 'Folder of the models' -r -f -a "(__fish_complete_directories)"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand config; and not __fish_seen_subcommand_from check path help" -l set -d 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand config; and not __fish_seen_subcommand_from check path help" -l config -d 'Settings file instead of the usual one' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand config; and not __fish_seen_subcommand_from check path help" -l env-file -d 'Also read NAME=value lines from this file; the environment is stronger' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand config; and not __fish_seen_subcommand_from check path help" -l color -d 'Colours' -r -f -a "auto\t'On terminals, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand config; and not __fish_seen_subcommand_from check path help" -l changed -d 'Only settings that are not the default'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand config; and not __fish_seen_subcommand_from check path help" -l json -d 'Print JSON'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand config; and not __fish_seen_subcommand_from check path help" -s q -l quiet -d 'Say nothing but errors'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand config; and not __fish_seen_subcommand_from check path help" -s v -d 'Log more: -v debug, -vv trace'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand config; and not __fish_seen_subcommand_from check path help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand config; and not __fish_seen_subcommand_from check path help" -f -a "check" -d 'Look for mistakes in all places settings come from'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand config; and not __fish_seen_subcommand_from check path help" -f -a "path" -d 'Print where the settings file is, or would be'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand config; and not __fish_seen_subcommand_from check path help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand config; and __fish_seen_subcommand_from check" -l host -d 'Address of the server: host, :port, host:port, [v6]:port or a URL' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand config; and __fish_seen_subcommand_from check" -s p -l port -d 'Port of the server' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand config; and __fish_seen_subcommand_from check" -l models -d 'Folder of the models' -r -f -a "(__fish_complete_directories)"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand config; and __fish_seen_subcommand_from check" -l set -d 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand config; and __fish_seen_subcommand_from check" -l config -d 'Settings file instead of the usual one' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand config; and __fish_seen_subcommand_from check" -l env-file -d 'Also read NAME=value lines from this file; the environment is stronger' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand config; and __fish_seen_subcommand_from check" -l color -d 'Colours' -r -f -a "auto\t'On terminals, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand config; and __fish_seen_subcommand_from check" -s q -l quiet -d 'Say nothing but errors'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand config; and __fish_seen_subcommand_from check" -s v -d 'Log more: -v debug, -vv trace'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand config; and __fish_seen_subcommand_from check" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand config; and __fish_seen_subcommand_from path" -l host -d 'Address of the server: host, :port, host:port, [v6]:port or a URL' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand config; and __fish_seen_subcommand_from path" -s p -l port -d 'Port of the server' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand config; and __fish_seen_subcommand_from path" -l models -d 'Folder of the models' -r -f -a "(__fish_complete_directories)"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand config; and __fish_seen_subcommand_from path" -l set -d 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand config; and __fish_seen_subcommand_from path" -l config -d 'Settings file instead of the usual one' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand config; and __fish_seen_subcommand_from path" -l env-file -d 'Also read NAME=value lines from this file; the environment is stronger' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand config; and __fish_seen_subcommand_from path" -l color -d 'Colours' -r -f -a "auto\t'On terminals, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand config; and __fish_seen_subcommand_from path" -s q -l quiet -d 'Say nothing but errors'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand config; and __fish_seen_subcommand_from path" -s v -d 'Log more: -v debug, -vv trace'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand config; and __fish_seen_subcommand_from path" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand config; and __fish_seen_subcommand_from help" -f -a "check" -d 'Look for mistakes in all places settings come from'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand config; and __fish_seen_subcommand_from help" -f -a "path" -d 'Print where the settings file is, or would be'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand config; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand completions" -l host -d 'Address of the server: host, :port, host:port, [v6]:port or a URL' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand completions" -s p -l port -d 'Port of the server' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand completions" -l models -d 'Folder of the models' -r -f -a "(__fish_complete_directories)"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand completions" -l set -d 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand completions" -l config -d 'Settings file instead of the usual one' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand completions" -l env-file -d 'Also read NAME=value lines from this file; the environment is stronger' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand completions" -l color -d 'Colours' -r -f -a "auto\t'On terminals, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand completions" -s q -l quiet -d 'Say nothing but errors'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand completions" -s v -d 'Log more: -v debug, -vv trace'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand completions" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand version" -l host -d 'Address of the server: host, :port, host:port, [v6]:port or a URL' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand version" -s p -l port -d 'Port of the server' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand version" -l models -d 'Folder of the models' -r -f -a "(__fish_complete_directories)"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand version" -l set -d 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand version" -l config -d 'Settings file instead of the usual one' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand version" -l env-file -d 'Also read NAME=value lines from this file; the environment is stronger' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand version" -l color -d 'Colours' -r -f -a "auto\t'On terminals, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand version" -l json -d 'Print JSON'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand version" -s q -l quiet -d 'Say nothing but errors'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand version" -s v -d 'Log more: -v debug, -vv trace'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand version" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand generate" -l out -d 'Folder below which man/, completions/ and docs/ are written' -r -f -a "(__fish_complete_directories)"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand generate" -l host -d 'Address of the server: host, :port, host:port, [v6]:port or a URL' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand generate" -s p -l port -d 'Port of the server' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand generate" -l models -d 'Folder of the models' -r -f -a "(__fish_complete_directories)"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand generate" -l set -d 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)' -r
complete -c llmsrv -n "__fish_llmsrv_using_subcommand generate" -l config -d 'Settings file instead of the usual one' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand generate" -l env-file -d 'Also read NAME=value lines from this file; the environment is stronger' -r -F
complete -c llmsrv -n "__fish_llmsrv_using_subcommand generate" -l color -d 'Colours' -r -f -a "auto\t'On terminals, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c llmsrv -n "__fish_llmsrv_using_subcommand generate" -s q -l quiet -d 'Say nothing but errors'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand generate" -s v -d 'Log more: -v debug, -vv trace'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand generate" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand help; and not __fish_seen_subcommand_from serve run list show create ps stop status test examples pull push cp rm logkit bench key config completions version generate help" -f -a "serve" -d 'Serve models over HTTP'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand help; and not __fish_seen_subcommand_from serve run list show create ps stop status test examples pull push cp rm logkit bench key config completions version generate help" -f -a "run" -d 'Chat with a model, or ask it one thing'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand help; and not __fish_seen_subcommand_from serve run list show create ps stop status test examples pull push cp rm logkit bench key config completions version generate help" -f -a "list" -d 'List the models'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand help; and not __fish_seen_subcommand_from serve run list show create ps stop status test examples pull push cp rm logkit bench key config completions version generate help" -f -a "show" -d 'Show what is known of a model'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand help; and not __fish_seen_subcommand_from serve run list show create ps stop status test examples pull push cp rm logkit bench key config completions version generate help" -f -a "create" -d 'Make a model from a Modelfile, another model or model files'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand help; and not __fish_seen_subcommand_from serve run list show create ps stop status test examples pull push cp rm logkit bench key config completions version generate help" -f -a "ps" -d 'List the loaded models'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand help; and not __fish_seen_subcommand_from serve run list show create ps stop status test examples pull push cp rm logkit bench key config completions version generate help" -f -a "stop" -d 'Unload a model from memory, or stop the server'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand help; and not __fish_seen_subcommand_from serve run list show create ps stop status test examples pull push cp rm logkit bench key config completions version generate help" -f -a "status" -d 'Show what runs, where, and what it has loaded'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand help; and not __fish_seen_subcommand_from serve run list show create ps stop status test examples pull push cp rm logkit bench key config completions version generate help" -f -a "test" -d 'Check the running server, step by step'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand help; and not __fish_seen_subcommand_from serve run list show create ps stop status test examples pull push cp rm logkit bench key config completions version generate help" -f -a "examples" -d 'Print requests that work as they are, for curl, Python and JavaScript'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand help; and not __fish_seen_subcommand_from serve run list show create ps stop status test examples pull push cp rm logkit bench key config completions version generate help" -f -a "pull" -d 'Bring models in from a registry or the Hugging Face hub'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand help; and not __fish_seen_subcommand_from serve run list show create ps stop status test examples pull push cp rm logkit bench key config completions version generate help" -f -a "push" -d 'Send a model to its registry'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand help; and not __fish_seen_subcommand_from serve run list show create ps stop status test examples pull push cp rm logkit bench key config completions version generate help" -f -a "cp" -d 'Copy a model under a new name'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand help; and not __fish_seen_subcommand_from serve run list show create ps stop status test examples pull push cp rm logkit bench key config completions version generate help" -f -a "rm" -d 'Remove models'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand help; and not __fish_seen_subcommand_from serve run list show create ps stop status test examples pull push cp rm logkit bench key config completions version generate help" -f -a "logkit" -d 'Log commands and calls, and look at what was logged'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand help; and not __fish_seen_subcommand_from serve run list show create ps stop status test examples pull push cp rm logkit bench key config completions version generate help" -f -a "bench" -d 'Measure how fast models run here, beside the machine\'s limits and other engines'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand help; and not __fish_seen_subcommand_from serve run list show create ps stop status test examples pull push cp rm logkit bench key config completions version generate help" -f -a "key" -d 'Make, list and remove the keys of those who may call the server'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand help; and not __fish_seen_subcommand_from serve run list show create ps stop status test examples pull push cp rm logkit bench key config completions version generate help" -f -a "config" -d 'Print every setting, its value and where it came from'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand help; and not __fish_seen_subcommand_from serve run list show create ps stop status test examples pull push cp rm logkit bench key config completions version generate help" -f -a "completions" -d 'Print the script that makes a shell complete commands and model names'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand help; and not __fish_seen_subcommand_from serve run list show create ps stop status test examples pull push cp rm logkit bench key config completions version generate help" -f -a "version" -d 'Print versions of the program and of the running server'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand help; and not __fish_seen_subcommand_from serve run list show create ps stop status test examples pull push cp rm logkit bench key config completions version generate help" -f -a "generate" -d 'Write man pages, completions and the settings reference'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand help; and not __fish_seen_subcommand_from serve run list show create ps stop status test examples pull push cp rm logkit bench key config completions version generate help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand help; and __fish_seen_subcommand_from key" -f -a "add" -d 'Make a key and print it; it cannot be shown again'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand help; and __fish_seen_subcommand_from key" -f -a "list" -d 'List the keys'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand help; and __fish_seen_subcommand_from key" -f -a "rm" -d 'Remove a key: it stops working'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand help; and __fish_seen_subcommand_from config" -f -a "check" -d 'Look for mistakes in all places settings come from'
complete -c llmsrv -n "__fish_llmsrv_using_subcommand help; and __fish_seen_subcommand_from config" -f -a "path" -d 'Print where the settings file is, or would be'
