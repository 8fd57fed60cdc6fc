
use builtin;
use str;

set edit:completion:arg-completer[llmsrv] = {|@words|
    fn spaces {|n|
        builtin:repeat $n ' ' | str:join ''
    }
    fn cand {|text desc|
        edit:complex-candidate $text &display=$text' '(spaces (- 14 (wcswidth $text)))$desc
    }
    var command = 'llmsrv'
    for word $words[1..-1] {
        if (str:has-prefix $word '-') {
            break
        }
        set command = $command';'$word
    }
    var completions = [
        &'llmsrv'= {
            cand --host 'Address of the server: host, :port, host:port, [v6]:port or a URL'
            cand -p 'Port of the server'
            cand --port 'Port of the server'
            cand --models 'Folder of the models'
            cand --set 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)'
            cand --config 'Settings file instead of the usual one'
            cand --env-file 'Also read NAME=value lines from this file; the environment is stronger'
            cand --color 'Colours'
            cand -q 'Say nothing but errors'
            cand --quiet 'Say nothing but errors'
            cand -v 'Log more: -v debug, -vv trace'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
            cand -V 'Print version'
            cand --version 'Print version'
            cand serve 'Serve models over HTTP'
            cand run 'Chat with a model, or ask it one thing'
            cand list 'List the models'
            cand ls 'List the models'
            cand show 'Show what is known of a model'
            cand create 'Make a model from a Modelfile, another model or model files'
            cand ps 'List the loaded models'
            cand stop 'Unload a model from memory, or stop the server'
            cand status 'Show what runs, where, and what it has loaded'
            cand test 'Check the running server, step by step'
            cand examples 'Print requests that work as they are, for curl, Python and JavaScript'
            cand pull 'Bring models in from a registry or the Hugging Face hub'
            cand push 'Send a model to its registry'
            cand cp 'Copy a model under a new name'
            cand rm 'Remove models'
            cand logkit 'Log commands and calls, and look at what was logged'
            cand bench 'Measure how fast models run here, beside the machine''s limits and other engines'
            cand key 'Make, list and remove the keys of those who may call the server'
            cand config 'Print every setting, its value and where it came from'
            cand completions 'Print the script that makes a shell complete commands and model names'
            cand version 'Print versions of the program and of the running server'
            cand generate 'Write man pages, completions and the settings reference'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'llmsrv;serve'= {
            cand --preload 'Models to load at the start, between commas'
            cand --keep-alive 'How long an idle model stays loaded, such as 30m; -1 = forever'
            cand --parallel 'Requests one model answers at the same time'
            cand --host 'Address of the server: host, :port, host:port, [v6]:port or a URL'
            cand -p 'Port of the server'
            cand --port 'Port of the server'
            cand --models 'Folder of the models'
            cand --set 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)'
            cand --config 'Settings file instead of the usual one'
            cand --env-file 'Also read NAME=value lines from this file; the environment is stronger'
            cand --color 'Colours'
            cand -q 'Say nothing but errors'
            cand --quiet 'Say nothing but errors'
            cand -v 'Log more: -v debug, -vv trace'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'llmsrv;run'= {
            cand --system 'System prompt'
            cand --format 'Form of the answer: `json`, or a JSON Schema'
            cand -o 'Set an option of the model, such as temperature=0 (may be repeated)'
            cand --option 'Set an option of the model, such as temperature=0 (may be repeated)'
            cand --keepalive 'How long the model stays loaded afterwards, such as 30m; -1 = forever'
            cand --think 'Let the model think first'
            cand --host 'Address of the server: host, :port, host:port, [v6]:port or a URL'
            cand -p 'Port of the server'
            cand --port 'Port of the server'
            cand --models 'Folder of the models'
            cand --set 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)'
            cand --config 'Settings file instead of the usual one'
            cand --env-file 'Also read NAME=value lines from this file; the environment is stronger'
            cand --color 'Colours'
            cand --nothink 'Do not let the model think first'
            cand --hidethinking 'Do not show what the model thinks'
            cand --nowordwrap 'Do not wrap lines at the width of the terminal'
            cand --verbose 'Print timings after the answer'
            cand -q 'Say nothing but errors'
            cand --quiet 'Say nothing but errors'
            cand -v 'Log more: -v debug, -vv trace'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'llmsrv;list'= {
            cand --host 'Address of the server: host, :port, host:port, [v6]:port or a URL'
            cand -p 'Port of the server'
            cand --port 'Port of the server'
            cand --models 'Folder of the models'
            cand --set 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)'
            cand --config 'Settings file instead of the usual one'
            cand --env-file 'Also read NAME=value lines from this file; the environment is stronger'
            cand --color 'Colours'
            cand --json 'Print JSON'
            cand -q 'Say nothing but errors'
            cand --quiet 'Say nothing but errors'
            cand -v 'Log more: -v debug, -vv trace'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'llmsrv;ls'= {
            cand --host 'Address of the server: host, :port, host:port, [v6]:port or a URL'
            cand -p 'Port of the server'
            cand --port 'Port of the server'
            cand --models 'Folder of the models'
            cand --set 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)'
            cand --config 'Settings file instead of the usual one'
            cand --env-file 'Also read NAME=value lines from this file; the environment is stronger'
            cand --color 'Colours'
            cand --json 'Print JSON'
            cand -q 'Say nothing but errors'
            cand --quiet 'Say nothing but errors'
            cand -v 'Log more: -v debug, -vv trace'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'llmsrv;show'= {
            cand --host 'Address of the server: host, :port, host:port, [v6]:port or a URL'
            cand -p 'Port of the server'
            cand --port 'Port of the server'
            cand --models 'Folder of the models'
            cand --set 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)'
            cand --config 'Settings file instead of the usual one'
            cand --env-file 'Also read NAME=value lines from this file; the environment is stronger'
            cand --color 'Colours'
            cand --modelfile 'Only the Modelfile'
            cand --parameters 'Only the parameters'
            cand --template 'Only the prompt template'
            cand --system 'Only the system prompt'
            cand --license 'Only the licence'
            cand --verbose 'Also all metadata and tensors'
            cand --json 'Print JSON'
            cand -q 'Say nothing but errors'
            cand --quiet 'Say nothing but errors'
            cand -v 'Log more: -v debug, -vv trace'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'llmsrv;create'= {
            cand -f 'The Modelfile; `-` is standard input [default: Modelfile, unless --from is given]'
            cand --file 'The Modelfile; `-` is standard input [default: Modelfile, unless --from is given]'
            cand --from 'A model, a GGUF file or a folder, in place of what the Modelfile says'
            cand -Q 'Quantize the weights: Q4_K_M, Q8_0, F16, ...'
            cand --quantize 'Quantize the weights: Q4_K_M, Q8_0, F16, ...'
            cand --host 'Address of the server: host, :port, host:port, [v6]:port or a URL'
            cand -p 'Port of the server'
            cand --port 'Port of the server'
            cand --models 'Folder of the models'
            cand --set 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)'
            cand --config 'Settings file instead of the usual one'
            cand --env-file 'Also read NAME=value lines from this file; the environment is stronger'
            cand --color 'Colours'
            cand --copy 'Copy model files where they could be linked'
            cand --json 'Print the steps as JSON lines'
            cand -q 'Say nothing but errors'
            cand --quiet 'Say nothing but errors'
            cand -v 'Log more: -v debug, -vv trace'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'llmsrv;ps'= {
            cand --host 'Address of the server: host, :port, host:port, [v6]:port or a URL'
            cand -p 'Port of the server'
            cand --port 'Port of the server'
            cand --models 'Folder of the models'
            cand --set 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)'
            cand --config 'Settings file instead of the usual one'
            cand --env-file 'Also read NAME=value lines from this file; the environment is stronger'
            cand --color 'Colours'
            cand --json 'Print JSON'
            cand -q 'Say nothing but errors'
            cand --quiet 'Say nothing but errors'
            cand -v 'Log more: -v debug, -vv trace'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'llmsrv;stop'= {
            cand --host 'Address of the server: host, :port, host:port, [v6]:port or a URL'
            cand -p 'Port of the server'
            cand --port 'Port of the server'
            cand --models 'Folder of the models'
            cand --set 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)'
            cand --config 'Settings file instead of the usual one'
            cand --env-file 'Also read NAME=value lines from this file; the environment is stronger'
            cand --color 'Colours'
            cand -q 'Say nothing but errors'
            cand --quiet 'Say nothing but errors'
            cand -v 'Log more: -v debug, -vv trace'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'llmsrv;status'= {
            cand --host 'Address of the server: host, :port, host:port, [v6]:port or a URL'
            cand -p 'Port of the server'
            cand --port 'Port of the server'
            cand --models 'Folder of the models'
            cand --set 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)'
            cand --config 'Settings file instead of the usual one'
            cand --env-file 'Also read NAME=value lines from this file; the environment is stronger'
            cand --color 'Colours'
            cand --json 'Print it as JSON'
            cand -q 'Say nothing but errors'
            cand --quiet 'Say nothing but errors'
            cand -v 'Log more: -v debug, -vv trace'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'llmsrv;test'= {
            cand --model 'The model that answers'
            cand --host 'Address of the server: host, :port, host:port, [v6]:port or a URL'
            cand -p 'Port of the server'
            cand --port 'Port of the server'
            cand --models 'Folder of the models'
            cand --set 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)'
            cand --config 'Settings file instead of the usual one'
            cand --env-file 'Also read NAME=value lines from this file; the environment is stronger'
            cand --color 'Colours'
            cand --json 'Print the results as JSON'
            cand -q 'Say nothing but errors'
            cand --quiet 'Say nothing but errors'
            cand -v 'Log more: -v debug, -vv trace'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'llmsrv;examples'= {
            cand -l 'Only one language'
            cand --language 'Only one language'
            cand --model 'The model in the examples'
            cand --host 'Address of the server: host, :port, host:port, [v6]:port or a URL'
            cand -p 'Port of the server'
            cand --port 'Port of the server'
            cand --models 'Folder of the models'
            cand --set 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)'
            cand --config 'Settings file instead of the usual one'
            cand --env-file 'Also read NAME=value lines from this file; the environment is stronger'
            cand --color 'Colours'
            cand --json 'Print them as JSON'
            cand -q 'Say nothing but errors'
            cand --quiet 'Say nothing but errors'
            cand -v 'Log more: -v debug, -vv trace'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'llmsrv;pull'= {
            cand --host 'Address of the server: host, :port, host:port, [v6]:port or a URL'
            cand -p 'Port of the server'
            cand --port 'Port of the server'
            cand --models 'Folder of the models'
            cand --set 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)'
            cand --config 'Settings file instead of the usual one'
            cand --env-file 'Also read NAME=value lines from this file; the environment is stronger'
            cand --color 'Colours'
            cand --insecure 'Allow plain http and unverified certificates for a host of a private network'
            cand --json 'Print each step as a line of JSON'
            cand -q 'Say nothing but errors'
            cand --quiet 'Say nothing but errors'
            cand -v 'Log more: -v debug, -vv trace'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'llmsrv;push'= {
            cand --host 'Address of the server: host, :port, host:port, [v6]:port or a URL'
            cand -p 'Port of the server'
            cand --port 'Port of the server'
            cand --models 'Folder of the models'
            cand --set 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)'
            cand --config 'Settings file instead of the usual one'
            cand --env-file 'Also read NAME=value lines from this file; the environment is stronger'
            cand --color 'Colours'
            cand --insecure 'Allow plain http and unverified certificates for a host of a private network'
            cand --json 'Print each step as a line of JSON'
            cand -q 'Say nothing but errors'
            cand --quiet 'Say nothing but errors'
            cand -v 'Log more: -v debug, -vv trace'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'llmsrv;cp'= {
            cand --host 'Address of the server: host, :port, host:port, [v6]:port or a URL'
            cand -p 'Port of the server'
            cand --port 'Port of the server'
            cand --models 'Folder of the models'
            cand --set 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)'
            cand --config 'Settings file instead of the usual one'
            cand --env-file 'Also read NAME=value lines from this file; the environment is stronger'
            cand --color 'Colours'
            cand -q 'Say nothing but errors'
            cand --quiet 'Say nothing but errors'
            cand -v 'Log more: -v debug, -vv trace'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'llmsrv;rm'= {
            cand --host 'Address of the server: host, :port, host:port, [v6]:port or a URL'
            cand -p 'Port of the server'
            cand --port 'Port of the server'
            cand --models 'Folder of the models'
            cand --set 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)'
            cand --config 'Settings file instead of the usual one'
            cand --env-file 'Also read NAME=value lines from this file; the environment is stronger'
            cand --color 'Colours'
            cand -q 'Say nothing but errors'
            cand --quiet 'Say nothing but errors'
            cand -v 'Log more: -v debug, -vv trace'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'llmsrv;logkit'= {
            cand --host 'Address of the server: host, :port, host:port, [v6]:port or a URL'
            cand -p 'Port of the server'
            cand --port 'Port of the server'
            cand --models 'Folder of the models'
            cand --set 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)'
            cand --config 'Settings file instead of the usual one'
            cand --env-file 'Also read NAME=value lines from this file; the environment is stronger'
            cand --color 'Colours'
            cand -q 'Say nothing but errors'
            cand --quiet 'Say nothing but errors'
            cand -v 'Log more: -v debug, -vv trace'
        }
        &'llmsrv;bench'= {
            cand --pp 'Lengths of prompts to read'
            cand -n 'Numbers of tokens to generate'
            cand --tg 'Numbers of tokens to generate'
            cand -d 'Tokens that come before'
            cand --depth 'Tokens that come before'
            cand -b 'Sequences to generate together'
            cand --batch 'Sequences to generate together'
            cand -r 'Rounds of every test'
            cand --rounds 'Rounds of every test'
            cand -t 'Threads of the arithmetic [default: the setting, or one for each core]'
            cand --threads 'Threads of the arithmetic [default: the setting, or one for each core]'
            cand --peer 'Measure this command, too; {model}, {threads}, {pp}, {tg}, {depth} and {batch} are replaced'
            cand --peer-python 'Measure llama.cpp, too, through the package llama-cpp-python of this interpreter'
            cand --make-model 'Write a model with random weights: 0.5b, 1b, 1.7b, 8b or tiny, or one of these with changes (1b:layers=4,vocab=4096)'
            cand -Q 'With --make-model: the type of the weights'
            cand --quantize 'With --make-model: the type of the weights'
            cand -o 'With --make-model: the file'
            cand --output 'With --make-model: the file'
            cand --ready 'Load this file, compute one token, print the resident bytes'
            cand --host 'Address of the server: host, :port, host:port, [v6]:port or a URL'
            cand -p 'Port of the server'
            cand --port 'Port of the server'
            cand --models 'Folder of the models'
            cand --set 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)'
            cand --config 'Settings file instead of the usual one'
            cand --env-file 'Also read NAME=value lines from this file; the environment is stronger'
            cand --color 'Colours'
            cand --quick 'Only pp and tg: no first token, no new process, no HTTP'
            cand --peer-unpacked 'With --peer-python: also without packing the weights, which is faster for some models'
            cand --limits 'Measure the limits of the machine and nothing else'
            cand --json 'Print one JSON document'
            cand --markdown 'Print a table for a document'
            cand -q 'Say nothing but errors'
            cand --quiet 'Say nothing but errors'
            cand -v 'Log more: -v debug, -vv trace'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'llmsrv;key'= {
            cand --host 'Address of the server: host, :port, host:port, [v6]:port or a URL'
            cand -p 'Port of the server'
            cand --port 'Port of the server'
            cand --models 'Folder of the models'
            cand --set 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)'
            cand --config 'Settings file instead of the usual one'
            cand --env-file 'Also read NAME=value lines from this file; the environment is stronger'
            cand --color 'Colours'
            cand -q 'Say nothing but errors'
            cand --quiet 'Say nothing but errors'
            cand -v 'Log more: -v debug, -vv trace'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
            cand add 'Make a key and print it; it cannot be shown again'
            cand list 'List the keys'
            cand ls 'List the keys'
            cand rm 'Remove a key: it stops working'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'llmsrv;key;add'= {
            cand --role 'What it allows'
            cand --host 'Address of the server: host, :port, host:port, [v6]:port or a URL'
            cand -p 'Port of the server'
            cand --port 'Port of the server'
            cand --models 'Folder of the models'
            cand --set 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)'
            cand --config 'Settings file instead of the usual one'
            cand --env-file 'Also read NAME=value lines from this file; the environment is stronger'
            cand --color 'Colours'
            cand -q 'Say nothing but errors'
            cand --quiet 'Say nothing but errors'
            cand -v 'Log more: -v debug, -vv trace'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'llmsrv;key;list'= {
            cand --host 'Address of the server: host, :port, host:port, [v6]:port or a URL'
            cand -p 'Port of the server'
            cand --port 'Port of the server'
            cand --models 'Folder of the models'
            cand --set 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)'
            cand --config 'Settings file instead of the usual one'
            cand --env-file 'Also read NAME=value lines from this file; the environment is stronger'
            cand --color 'Colours'
            cand --json 'Print JSON'
            cand -q 'Say nothing but errors'
            cand --quiet 'Say nothing but errors'
            cand -v 'Log more: -v debug, -vv trace'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'llmsrv;key;ls'= {
            cand --host 'Address of the server: host, :port, host:port, [v6]:port or a URL'
            cand -p 'Port of the server'
            cand --port 'Port of the server'
            cand --models 'Folder of the models'
            cand --set 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)'
            cand --config 'Settings file instead of the usual one'
            cand --env-file 'Also read NAME=value lines from this file; the environment is stronger'
            cand --color 'Colours'
            cand --json 'Print JSON'
            cand -q 'Say nothing but errors'
            cand --quiet 'Say nothing but errors'
            cand -v 'Log more: -v debug, -vv trace'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'llmsrv;key;rm'= {
            cand --host 'Address of the server: host, :port, host:port, [v6]:port or a URL'
            cand -p 'Port of the server'
            cand --port 'Port of the server'
            cand --models 'Folder of the models'
            cand --set 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)'
            cand --config 'Settings file instead of the usual one'
            cand --env-file 'Also read NAME=value lines from this file; the environment is stronger'
            cand --color 'Colours'
            cand -q 'Say nothing but errors'
            cand --quiet 'Say nothing but errors'
            cand -v 'Log more: -v debug, -vv trace'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'llmsrv;key;help'= {
            cand add 'Make a key and print it; it cannot be shown again'
            cand list 'List the keys'
            cand rm 'Remove a key: it stops working'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'llmsrv;key;help;add'= {
        }
        &'llmsrv;key;help;list'= {
        }
        &'llmsrv;key;help;rm'= {
        }
        &'llmsrv;key;help;help'= {
        }
        &'llmsrv;config'= {
            cand --host 'Address of the server: host, :port, host:port, [v6]:port or a URL'
            cand -p 'Port of the server'
            cand --port 'Port of the server'
            cand --models 'Folder of the models'
            cand --set 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)'
            cand --config 'Settings file instead of the usual one'
            cand --env-file 'Also read NAME=value lines from this file; the environment is stronger'
            cand --color 'Colours'
            cand --changed 'Only settings that are not the default'
            cand --json 'Print JSON'
            cand -q 'Say nothing but errors'
            cand --quiet 'Say nothing but errors'
            cand -v 'Log more: -v debug, -vv trace'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
            cand check 'Look for mistakes in all places settings come from'
            cand path 'Print where the settings file is, or would be'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'llmsrv;config;check'= {
            cand --host 'Address of the server: host, :port, host:port, [v6]:port or a URL'
            cand -p 'Port of the server'
            cand --port 'Port of the server'
            cand --models 'Folder of the models'
            cand --set 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)'
            cand --config 'Settings file instead of the usual one'
            cand --env-file 'Also read NAME=value lines from this file; the environment is stronger'
            cand --color 'Colours'
            cand -q 'Say nothing but errors'
            cand --quiet 'Say nothing but errors'
            cand -v 'Log more: -v debug, -vv trace'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'llmsrv;config;path'= {
            cand --host 'Address of the server: host, :port, host:port, [v6]:port or a URL'
            cand -p 'Port of the server'
            cand --port 'Port of the server'
            cand --models 'Folder of the models'
            cand --set 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)'
            cand --config 'Settings file instead of the usual one'
            cand --env-file 'Also read NAME=value lines from this file; the environment is stronger'
            cand --color 'Colours'
            cand -q 'Say nothing but errors'
            cand --quiet 'Say nothing but errors'
            cand -v 'Log more: -v debug, -vv trace'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'llmsrv;config;help'= {
            cand check 'Look for mistakes in all places settings come from'
            cand path 'Print where the settings file is, or would be'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'llmsrv;config;help;check'= {
        }
        &'llmsrv;config;help;path'= {
        }
        &'llmsrv;config;help;help'= {
        }
        &'llmsrv;completions'= {
            cand --host 'Address of the server: host, :port, host:port, [v6]:port or a URL'
            cand -p 'Port of the server'
            cand --port 'Port of the server'
            cand --models 'Folder of the models'
            cand --set 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)'
            cand --config 'Settings file instead of the usual one'
            cand --env-file 'Also read NAME=value lines from this file; the environment is stronger'
            cand --color 'Colours'
            cand -q 'Say nothing but errors'
            cand --quiet 'Say nothing but errors'
            cand -v 'Log more: -v debug, -vv trace'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'llmsrv;version'= {
            cand --host 'Address of the server: host, :port, host:port, [v6]:port or a URL'
            cand -p 'Port of the server'
            cand --port 'Port of the server'
            cand --models 'Folder of the models'
            cand --set 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)'
            cand --config 'Settings file instead of the usual one'
            cand --env-file 'Also read NAME=value lines from this file; the environment is stronger'
            cand --color 'Colours'
            cand --json 'Print JSON'
            cand -q 'Say nothing but errors'
            cand --quiet 'Say nothing but errors'
            cand -v 'Log more: -v debug, -vv trace'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'llmsrv;generate'= {
            cand --out 'Folder below which man/, completions/ and docs/ are written'
            cand --host 'Address of the server: host, :port, host:port, [v6]:port or a URL'
            cand -p 'Port of the server'
            cand --port 'Port of the server'
            cand --models 'Folder of the models'
            cand --set 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)'
            cand --config 'Settings file instead of the usual one'
            cand --env-file 'Also read NAME=value lines from this file; the environment is stronger'
            cand --color 'Colours'
            cand -q 'Say nothing but errors'
            cand --quiet 'Say nothing but errors'
            cand -v 'Log more: -v debug, -vv trace'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'llmsrv;help'= {
            cand serve 'Serve models over HTTP'
            cand run 'Chat with a model, or ask it one thing'
            cand list 'List the models'
            cand show 'Show what is known of a model'
            cand create 'Make a model from a Modelfile, another model or model files'
            cand ps 'List the loaded models'
            cand stop 'Unload a model from memory, or stop the server'
            cand status 'Show what runs, where, and what it has loaded'
            cand test 'Check the running server, step by step'
            cand examples 'Print requests that work as they are, for curl, Python and JavaScript'
            cand pull 'Bring models in from a registry or the Hugging Face hub'
            cand push 'Send a model to its registry'
            cand cp 'Copy a model under a new name'
            cand rm 'Remove models'
            cand logkit 'Log commands and calls, and look at what was logged'
            cand bench 'Measure how fast models run here, beside the machine''s limits and other engines'
            cand key 'Make, list and remove the keys of those who may call the server'
            cand config 'Print every setting, its value and where it came from'
            cand completions 'Print the script that makes a shell complete commands and model names'
            cand version 'Print versions of the program and of the running server'
            cand generate 'Write man pages, completions and the settings reference'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'llmsrv;help;serve'= {
        }
        &'llmsrv;help;run'= {
        }
        &'llmsrv;help;list'= {
        }
        &'llmsrv;help;show'= {
        }
        &'llmsrv;help;create'= {
        }
        &'llmsrv;help;ps'= {
        }
        &'llmsrv;help;stop'= {
        }
        &'llmsrv;help;status'= {
        }
        &'llmsrv;help;test'= {
        }
        &'llmsrv;help;examples'= {
        }
        &'llmsrv;help;pull'= {
        }
        &'llmsrv;help;push'= {
        }
        &'llmsrv;help;cp'= {
        }
        &'llmsrv;help;rm'= {
        }
        &'llmsrv;help;logkit'= {
        }
        &'llmsrv;help;bench'= {
        }
        &'llmsrv;help;key'= {
            cand add 'Make a key and print it; it cannot be shown again'
            cand list 'List the keys'
            cand rm 'Remove a key: it stops working'
        }
        &'llmsrv;help;key;add'= {
        }
        &'llmsrv;help;key;list'= {
        }
        &'llmsrv;help;key;rm'= {
        }
        &'llmsrv;help;config'= {
            cand check 'Look for mistakes in all places settings come from'
            cand path 'Print where the settings file is, or would be'
        }
        &'llmsrv;help;config;check'= {
        }
        &'llmsrv;help;config;path'= {
        }
        &'llmsrv;help;completions'= {
        }
        &'llmsrv;help;version'= {
        }
        &'llmsrv;help;generate'= {
        }
        &'llmsrv;help;help'= {
        }
    ]
    $completions[$command]
}
