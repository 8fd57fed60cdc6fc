# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_logkit_global_optspecs
    string join \n color= h/help V/version
end

function __fish_logkit_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_logkit_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_logkit_using_subcommand
    set -l cmd (__fish_logkit_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c logkit -n "__fish_logkit_needs_command" -l color -d 'Colours' -r -f -a "auto\t'On terminals, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c logkit -n "__fish_logkit_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c logkit -n "__fish_logkit_needs_command" -s V -l version -d 'Print version'
complete -c logkit -n "__fish_logkit_needs_command" -f -a "run" -d 'Run a command and log how it went'
complete -c logkit -n "__fish_logkit_needs_command" -f -a "logs" -d 'Show what was logged, newest first'
complete -c logkit -n "__fish_logkit_needs_command" -f -a "tail" -d 'Show what comes in until interrupted'
complete -c logkit -n "__fish_logkit_needs_command" -f -a "tree" -d 'Show the calls of a trace as a tree'
complete -c logkit -n "__fish_logkit_needs_command" -f -a "stats" -d 'Count calls, errors and times of each function'
complete -c logkit -n "__fish_logkit_needs_command" -f -a "diff" -d 'Compare what calls returned in two versions'
complete -c logkit -n "__fish_logkit_needs_command" -f -a "export" -d 'Copy entries into another database or file'
complete -c logkit -n "__fish_logkit_needs_command" -f -a "prune" -d 'Delete old entries'
complete -c logkit -n "__fish_logkit_needs_command" -f -a "replay" -d 'Show the commands that were logged as commands to type'
complete -c logkit -n "__fish_logkit_needs_command" -f -a "serve" -d 'Take entries over HTTP and gRPC, and show them on a page'
complete -c logkit -n "__fish_logkit_needs_command" -f -a "version" -d 'Print the version'
complete -c logkit -n "__fish_logkit_needs_command" -f -a "completions" -d 'Print the script that makes a shell complete commands'
complete -c logkit -n "__fish_logkit_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c logkit -n "__fish_logkit_using_subcommand run" -l sink -d 'Where the entry goes, such as db:FILE, csv:FILE, md:FILE or json:FILE; may be repeated' -r
complete -c logkit -n "__fish_logkit_using_subcommand run" -l env -d 'Environment tag of the entry' -r
complete -c logkit -n "__fish_logkit_using_subcommand run" -l timeout -d 'End the command after this time, with exit status 124; bare numbers are seconds, 0 is never' -r
complete -c logkit -n "__fish_logkit_using_subcommand run" -l cwd -d 'Folder to run the command in' -r -f -a "(__fish_complete_directories)"
complete -c logkit -n "__fish_logkit_using_subcommand run" -l env-file -d 'Read NAME=value lines from this file, for us and the command; the environment is stronger' -r -F
complete -c logkit -n "__fish_logkit_using_subcommand run" -l max-output -d 'Most bytes kept of each output stream: half of its start, half of its end' -r
complete -c logkit -n "__fish_logkit_using_subcommand run" -l color -d 'Colours' -r -f -a "auto\t'On terminals, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c logkit -n "__fish_logkit_using_subcommand run" -s p -l passthrough -d 'Give the command our own streams: nothing of its output is kept'
complete -c logkit -n "__fish_logkit_using_subcommand run" -l tty -d 'Run the command in a terminal of its own, even if ours is none'
complete -c logkit -n "__fish_logkit_using_subcommand run" -l no-tty -d 'Run the command with pipes, even in a terminal'
complete -c logkit -n "__fish_logkit_using_subcommand run" -s q -l quiet -d 'Do not print the entry on stderr'
complete -c logkit -n "__fish_logkit_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c logkit -n "__fish_logkit_using_subcommand logs" -l table -d 'Table of the entries' -r
complete -c logkit -n "__fish_logkit_using_subcommand logs" -l level -d 'Only this level' -r
complete -c logkit -n "__fish_logkit_using_subcommand logs" -l last -d 'Only the last 90s, 30m, 24h, 7d, 2w; bare numbers are hours' -r
complete -c logkit -n "__fish_logkit_using_subcommand logs" -l since -d 'Not before this time: 2026-11-20, 2026-11-20T19:54 (UTC unless it has an offset) or 2h' -r
complete -c logkit -n "__fish_logkit_using_subcommand logs" -l until -d 'Before this time' -r
complete -c logkit -n "__fish_logkit_using_subcommand logs" -s f -l function -d 'Functions whose name has this in it' -r
complete -c logkit -n "__fish_logkit_using_subcommand logs" -l env -d 'Only this environment' -r
complete -c logkit -n "__fish_logkit_using_subcommand logs" -l trace -d 'Only this trace' -r
complete -c logkit -n "__fish_logkit_using_subcommand logs" -l search -d 'Entries with these words anywhere' -r
complete -c logkit -n "__fish_logkit_using_subcommand logs" -l grep -d 'Entries with exactly this text anywhere, whatever its case' -r
complete -c logkit -n "__fish_logkit_using_subcommand logs" -l slow -d 'Calls that took this many milliseconds or more' -r
complete -c logkit -n "__fish_logkit_using_subcommand logs" -s n -l limit -d 'Most entries shown' -r
complete -c logkit -n "__fish_logkit_using_subcommand logs" -l sql -d 'Answer this query, which cannot change anything' -r
complete -c logkit -n "__fish_logkit_using_subcommand logs" -l color -d 'Colours' -r -f -a "auto\t'On terminals, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c logkit -n "__fish_logkit_using_subcommand logs" -s e -l errors -d 'Only errors'
complete -c logkit -n "__fish_logkit_using_subcommand logs" -l json -d 'Print JSON, one object a line'
complete -c logkit -n "__fish_logkit_using_subcommand logs" -l csv -d 'Print CSV with a header'
complete -c logkit -n "__fish_logkit_using_subcommand logs" -l follow -d 'Go on with what comes in until interrupted'
complete -c logkit -n "__fish_logkit_using_subcommand logs" -l stats -d 'Count instead of showing entries, as `logkit stats` does'
complete -c logkit -n "__fish_logkit_using_subcommand logs" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c logkit -n "__fish_logkit_using_subcommand tail" -l table -d 'Table of the entries' -r
complete -c logkit -n "__fish_logkit_using_subcommand tail" -l level -d 'Only this level' -r
complete -c logkit -n "__fish_logkit_using_subcommand tail" -l last -d 'Only the last 90s, 30m, 24h, 7d, 2w; bare numbers are hours' -r
complete -c logkit -n "__fish_logkit_using_subcommand tail" -l since -d 'Not before this time: 2026-11-20, 2026-11-20T19:54 (UTC unless it has an offset) or 2h' -r
complete -c logkit -n "__fish_logkit_using_subcommand tail" -l until -d 'Before this time' -r
complete -c logkit -n "__fish_logkit_using_subcommand tail" -s f -l function -d 'Functions whose name has this in it' -r
complete -c logkit -n "__fish_logkit_using_subcommand tail" -l env -d 'Only this environment' -r
complete -c logkit -n "__fish_logkit_using_subcommand tail" -l trace -d 'Only this trace' -r
complete -c logkit -n "__fish_logkit_using_subcommand tail" -l search -d 'Entries with these words anywhere' -r
complete -c logkit -n "__fish_logkit_using_subcommand tail" -l grep -d 'Entries with exactly this text anywhere, whatever its case' -r
complete -c logkit -n "__fish_logkit_using_subcommand tail" -l slow -d 'Calls that took this many milliseconds or more' -r
complete -c logkit -n "__fish_logkit_using_subcommand tail" -s n -l limit -d 'Entries shown at the start' -r
complete -c logkit -n "__fish_logkit_using_subcommand tail" -l color -d 'Colours' -r -f -a "auto\t'On terminals, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c logkit -n "__fish_logkit_using_subcommand tail" -s e -l errors -d 'Only errors'
complete -c logkit -n "__fish_logkit_using_subcommand tail" -l json -d 'Print JSON, one object a line'
complete -c logkit -n "__fish_logkit_using_subcommand tail" -l csv -d 'Print CSV with a header'
complete -c logkit -n "__fish_logkit_using_subcommand tail" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c logkit -n "__fish_logkit_using_subcommand tree" -l table -d 'Table of the entries' -r
complete -c logkit -n "__fish_logkit_using_subcommand tree" -l color -d 'Colours' -r -f -a "auto\t'On terminals, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c logkit -n "__fish_logkit_using_subcommand tree" -l json -d 'Print JSON, one nested object for each root'
complete -c logkit -n "__fish_logkit_using_subcommand tree" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c logkit -n "__fish_logkit_using_subcommand stats" -l table -d 'Table of the entries' -r
complete -c logkit -n "__fish_logkit_using_subcommand stats" -l level -d 'Only this level' -r
complete -c logkit -n "__fish_logkit_using_subcommand stats" -l last -d 'Only the last 90s, 30m, 24h, 7d, 2w; bare numbers are hours' -r
complete -c logkit -n "__fish_logkit_using_subcommand stats" -l since -d 'Not before this time: 2026-11-20, 2026-11-20T19:54 (UTC unless it has an offset) or 2h' -r
complete -c logkit -n "__fish_logkit_using_subcommand stats" -l until -d 'Before this time' -r
complete -c logkit -n "__fish_logkit_using_subcommand stats" -s f -l function -d 'Functions whose name has this in it' -r
complete -c logkit -n "__fish_logkit_using_subcommand stats" -l env -d 'Only this environment' -r
complete -c logkit -n "__fish_logkit_using_subcommand stats" -l trace -d 'Only this trace' -r
complete -c logkit -n "__fish_logkit_using_subcommand stats" -l search -d 'Entries with these words anywhere' -r
complete -c logkit -n "__fish_logkit_using_subcommand stats" -l grep -d 'Entries with exactly this text anywhere, whatever its case' -r
complete -c logkit -n "__fish_logkit_using_subcommand stats" -l slow -d 'Calls that took this many milliseconds or more' -r
complete -c logkit -n "__fish_logkit_using_subcommand stats" -l sort -d 'What the first row has most of' -r -f -a "count\t'Calls'
errors\t'Errors'
p95\t'The time that 95 of 100 calls keep to'
total\t'All time together'"
complete -c logkit -n "__fish_logkit_using_subcommand stats" -s n -l limit -d 'Most functions shown' -r
complete -c logkit -n "__fish_logkit_using_subcommand stats" -l color -d 'Colours' -r -f -a "auto\t'On terminals, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c logkit -n "__fish_logkit_using_subcommand stats" -s e -l errors -d 'Only errors'
complete -c logkit -n "__fish_logkit_using_subcommand stats" -l json -d 'Print JSON, one object a line'
complete -c logkit -n "__fish_logkit_using_subcommand stats" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c logkit -n "__fish_logkit_using_subcommand diff" -l table -d 'Table of the entries' -r
complete -c logkit -n "__fish_logkit_using_subcommand diff" -s f -l function -d 'Functions whose name has this in it' -r
complete -c logkit -n "__fish_logkit_using_subcommand diff" -l color -d 'Colours' -r -f -a "auto\t'On terminals, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c logkit -n "__fish_logkit_using_subcommand diff" -l json -d 'Print JSON, one object a line'
complete -c logkit -n "__fish_logkit_using_subcommand diff" -l exit-code -d 'Exit with 1 when there are differences'
complete -c logkit -n "__fish_logkit_using_subcommand diff" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c logkit -n "__fish_logkit_using_subcommand export" -l table -d 'Table of the entries' -r
complete -c logkit -n "__fish_logkit_using_subcommand export" -l level -d 'Only this level' -r
complete -c logkit -n "__fish_logkit_using_subcommand export" -l last -d 'Only the last 90s, 30m, 24h, 7d, 2w; bare numbers are hours' -r
complete -c logkit -n "__fish_logkit_using_subcommand export" -l since -d 'Not before this time: 2026-11-20, 2026-11-20T19:54 (UTC unless it has an offset) or 2h' -r
complete -c logkit -n "__fish_logkit_using_subcommand export" -l until -d 'Before this time' -r
complete -c logkit -n "__fish_logkit_using_subcommand export" -s f -l function -d 'Functions whose name has this in it' -r
complete -c logkit -n "__fish_logkit_using_subcommand export" -l env -d 'Only this environment' -r
complete -c logkit -n "__fish_logkit_using_subcommand export" -l trace -d 'Only this trace' -r
complete -c logkit -n "__fish_logkit_using_subcommand export" -l search -d 'Entries with these words anywhere' -r
complete -c logkit -n "__fish_logkit_using_subcommand export" -l grep -d 'Entries with exactly this text anywhere, whatever its case' -r
complete -c logkit -n "__fish_logkit_using_subcommand export" -l slow -d 'Calls that took this many milliseconds or more' -r
complete -c logkit -n "__fish_logkit_using_subcommand export" -l to -d 'Where entries go, such as csv:FILE, md:FILE, json:FILE or db:FILE; may be repeated' -r
complete -c logkit -n "__fish_logkit_using_subcommand export" -l color -d 'Colours' -r -f -a "auto\t'On terminals, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c logkit -n "__fish_logkit_using_subcommand export" -s e -l errors -d 'Only errors'
complete -c logkit -n "__fish_logkit_using_subcommand export" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c logkit -n "__fish_logkit_using_subcommand prune" -l table -d 'Table of the entries' -r
complete -c logkit -n "__fish_logkit_using_subcommand prune" -l older-than -d 'Delete entries older than 90s, 30m, 24h, 7d, 2w; bare numbers are hours' -r
complete -c logkit -n "__fish_logkit_using_subcommand prune" -l keep -d 'Delete all but the newest N entries' -r
complete -c logkit -n "__fish_logkit_using_subcommand prune" -l color -d 'Colours' -r -f -a "auto\t'On terminals, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c logkit -n "__fish_logkit_using_subcommand prune" -l dry-run -d 'Only say how many would be deleted'
complete -c logkit -n "__fish_logkit_using_subcommand prune" -l vacuum -d 'Give the freed space back to the disk'
complete -c logkit -n "__fish_logkit_using_subcommand prune" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c logkit -n "__fish_logkit_using_subcommand replay" -l table -d 'Table of the entries' -r
complete -c logkit -n "__fish_logkit_using_subcommand replay" -l level -d 'Only this level' -r
complete -c logkit -n "__fish_logkit_using_subcommand replay" -l last -d 'Only the last 90s, 30m, 24h, 7d, 2w; bare numbers are hours' -r
complete -c logkit -n "__fish_logkit_using_subcommand replay" -l since -d 'Not before this time: 2026-11-20, 2026-11-20T19:54 (UTC unless it has an offset) or 2h' -r
complete -c logkit -n "__fish_logkit_using_subcommand replay" -l until -d 'Before this time' -r
complete -c logkit -n "__fish_logkit_using_subcommand replay" -s f -l function -d 'Functions whose name has this in it' -r
complete -c logkit -n "__fish_logkit_using_subcommand replay" -l env -d 'Only this environment' -r
complete -c logkit -n "__fish_logkit_using_subcommand replay" -l trace -d 'Only this trace' -r
complete -c logkit -n "__fish_logkit_using_subcommand replay" -l search -d 'Entries with these words anywhere' -r
complete -c logkit -n "__fish_logkit_using_subcommand replay" -l grep -d 'Entries with exactly this text anywhere, whatever its case' -r
complete -c logkit -n "__fish_logkit_using_subcommand replay" -l slow -d 'Calls that took this many milliseconds or more' -r
complete -c logkit -n "__fish_logkit_using_subcommand replay" -s n -l limit -d 'Most commands shown' -r
complete -c logkit -n "__fish_logkit_using_subcommand replay" -l color -d 'Colours' -r -f -a "auto\t'On terminals, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c logkit -n "__fish_logkit_using_subcommand replay" -s e -l errors -d 'Only errors'
complete -c logkit -n "__fish_logkit_using_subcommand replay" -l dry-run -d 'Only print the commands; nothing is run'
complete -c logkit -n "__fish_logkit_using_subcommand replay" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c logkit -n "__fish_logkit_using_subcommand serve" -l host -d 'Address of both services; LOGKIT_HOST and LOGKIT_GRPC_HOST otherwise' -r
complete -c logkit -n "__fish_logkit_using_subcommand serve" -l port -d 'Port of HTTP' -r
complete -c logkit -n "__fish_logkit_using_subcommand serve" -l grpc-port -d 'Port of gRPC' -r
complete -c logkit -n "__fish_logkit_using_subcommand serve" -l api-key -d 'Key that callers must have; in LOGKIT_API_KEY other users cannot see it' -r
complete -c logkit -n "__fish_logkit_using_subcommand serve" -l db -d 'Database of the entries; logkit_central.db in LOGKIT_LOG_DIR otherwise' -r -F
complete -c logkit -n "__fish_logkit_using_subcommand serve" -l tls-cert -d 'Certificates in PEM form: then both services speak TLS' -r -F
complete -c logkit -n "__fish_logkit_using_subcommand serve" -l tls-key -d 'Key of the certificate' -r -F
complete -c logkit -n "__fish_logkit_using_subcommand serve" -l allow-origin -d 'Origin whose web pages may call, such as https://example.org; may be repeated' -r
complete -c logkit -n "__fish_logkit_using_subcommand serve" -l color -d 'Colours' -r -f -a "auto\t'On terminals, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c logkit -n "__fish_logkit_using_subcommand serve" -l no-grpc -d 'Do not speak gRPC'
complete -c logkit -n "__fish_logkit_using_subcommand serve" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c logkit -n "__fish_logkit_using_subcommand version" -l color -d 'Colours' -r -f -a "auto\t'On terminals, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c logkit -n "__fish_logkit_using_subcommand version" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c logkit -n "__fish_logkit_using_subcommand completions" -l color -d 'Colours' -r -f -a "auto\t'On terminals, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c logkit -n "__fish_logkit_using_subcommand completions" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c logkit -n "__fish_logkit_using_subcommand help; and not __fish_seen_subcommand_from run logs tail tree stats diff export prune replay serve version completions help" -f -a "run" -d 'Run a command and log how it went'
complete -c logkit -n "__fish_logkit_using_subcommand help; and not __fish_seen_subcommand_from run logs tail tree stats diff export prune replay serve version completions help" -f -a "logs" -d 'Show what was logged, newest first'
complete -c logkit -n "__fish_logkit_using_subcommand help; and not __fish_seen_subcommand_from run logs tail tree stats diff export prune replay serve version completions help" -f -a "tail" -d 'Show what comes in until interrupted'
complete -c logkit -n "__fish_logkit_using_subcommand help; and not __fish_seen_subcommand_from run logs tail tree stats diff export prune replay serve version completions help" -f -a "tree" -d 'Show the calls of a trace as a tree'
complete -c logkit -n "__fish_logkit_using_subcommand help; and not __fish_seen_subcommand_from run logs tail tree stats diff export prune replay serve version completions help" -f -a "stats" -d 'Count calls, errors and times of each function'
complete -c logkit -n "__fish_logkit_using_subcommand help; and not __fish_seen_subcommand_from run logs tail tree stats diff export prune replay serve version completions help" -f -a "diff" -d 'Compare what calls returned in two versions'
complete -c logkit -n "__fish_logkit_using_subcommand help; and not __fish_seen_subcommand_from run logs tail tree stats diff export prune replay serve version completions help" -f -a "export" -d 'Copy entries into another database or file'
complete -c logkit -n "__fish_logkit_using_subcommand help; and not __fish_seen_subcommand_from run logs tail tree stats diff export prune replay serve version completions help" -f -a "prune" -d 'Delete old entries'
complete -c logkit -n "__fish_logkit_using_subcommand help; and not __fish_seen_subcommand_from run logs tail tree stats diff export prune replay serve version completions help" -f -a "replay" -d 'Show the commands that were logged as commands to type'
complete -c logkit -n "__fish_logkit_using_subcommand help; and not __fish_seen_subcommand_from run logs tail tree stats diff export prune replay serve version completions help" -f -a "serve" -d 'Take entries over HTTP and gRPC, and show them on a page'
complete -c logkit -n "__fish_logkit_using_subcommand help; and not __fish_seen_subcommand_from run logs tail tree stats diff export prune replay serve version completions help" -f -a "version" -d 'Print the version'
complete -c logkit -n "__fish_logkit_using_subcommand help; and not __fish_seen_subcommand_from run logs tail tree stats diff export prune replay serve version completions help" -f -a "completions" -d 'Print the script that makes a shell complete commands'
complete -c logkit -n "__fish_logkit_using_subcommand help; and not __fish_seen_subcommand_from run logs tail tree stats diff export prune replay serve version completions help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
