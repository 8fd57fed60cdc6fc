
use builtin;
use str;

set edit:completion:arg-completer[logkit] = {|@words|
    fn spaces {|n|
        builtin:repeat $n ' ' | str:join ''
    }
    fn cand {|text desc|
        edit:complex-candidate $text &display=$text' '(spaces (- 14 (wcswidth $text)))$desc
    }
    var command = 'logkit'
    for word $words[1..-1] {
        if (str:has-prefix $word '-') {
            break
        }
        set command = $command';'$word
    }
    var completions = [
        &'logkit'= {
            cand --color 'Colours'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
            cand -V 'Print version'
            cand --version 'Print version'
            cand run 'Run a command and log how it went'
            cand logs 'Show what was logged, newest first'
            cand tail 'Show what comes in until interrupted'
            cand tree 'Show the calls of a trace as a tree'
            cand stats 'Count calls, errors and times of each function'
            cand diff 'Compare what calls returned in two versions'
            cand export 'Copy entries into another database or file'
            cand prune 'Delete old entries'
            cand replay 'Show the commands that were logged as commands to type'
            cand serve 'Take entries over HTTP and gRPC, and show them on a page'
            cand version 'Print the version'
            cand completions 'Print the script that makes a shell complete commands'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'logkit;run'= {
            cand --sink 'Where the entry goes, such as db:FILE, csv:FILE, md:FILE or json:FILE; may be repeated'
            cand --env 'Environment tag of the entry'
            cand --timeout 'End the command after this time, with exit status 124; bare numbers are seconds, 0 is never'
            cand --cwd 'Folder to run the command in'
            cand --env-file 'Read NAME=value lines from this file, for us and the command; the environment is stronger'
            cand --max-output 'Most bytes kept of each output stream: half of its start, half of its end'
            cand --color 'Colours'
            cand -p 'Give the command our own streams: nothing of its output is kept'
            cand --passthrough 'Give the command our own streams: nothing of its output is kept'
            cand --tty 'Run the command in a terminal of its own, even if ours is none'
            cand --no-tty 'Run the command with pipes, even in a terminal'
            cand -q 'Do not print the entry on stderr'
            cand --quiet 'Do not print the entry on stderr'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'logkit;logs'= {
            cand --table 'Table of the entries'
            cand --level 'Only this level'
            cand --last 'Only the last 90s, 30m, 24h, 7d, 2w; bare numbers are hours'
            cand --since 'Not before this time: 2026-11-20, 2026-11-20T19:54 (UTC unless it has an offset) or 2h'
            cand --until 'Before this time'
            cand -f 'Functions whose name has this in it'
            cand --function 'Functions whose name has this in it'
            cand --env 'Only this environment'
            cand --trace 'Only this trace'
            cand --search 'Entries with these words anywhere'
            cand --grep 'Entries with exactly this text anywhere, whatever its case'
            cand --slow 'Calls that took this many milliseconds or more'
            cand -n 'Most entries shown'
            cand --limit 'Most entries shown'
            cand --sql 'Answer this query, which cannot change anything'
            cand --color 'Colours'
            cand -e 'Only errors'
            cand --errors 'Only errors'
            cand --json 'Print JSON, one object a line'
            cand --csv 'Print CSV with a header'
            cand --follow 'Go on with what comes in until interrupted'
            cand --stats 'Count instead of showing entries, as `logkit stats` does'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'logkit;tail'= {
            cand --table 'Table of the entries'
            cand --level 'Only this level'
            cand --last 'Only the last 90s, 30m, 24h, 7d, 2w; bare numbers are hours'
            cand --since 'Not before this time: 2026-11-20, 2026-11-20T19:54 (UTC unless it has an offset) or 2h'
            cand --until 'Before this time'
            cand -f 'Functions whose name has this in it'
            cand --function 'Functions whose name has this in it'
            cand --env 'Only this environment'
            cand --trace 'Only this trace'
            cand --search 'Entries with these words anywhere'
            cand --grep 'Entries with exactly this text anywhere, whatever its case'
            cand --slow 'Calls that took this many milliseconds or more'
            cand -n 'Entries shown at the start'
            cand --limit 'Entries shown at the start'
            cand --color 'Colours'
            cand -e 'Only errors'
            cand --errors 'Only errors'
            cand --json 'Print JSON, one object a line'
            cand --csv 'Print CSV with a header'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'logkit;tree'= {
            cand --table 'Table of the entries'
            cand --color 'Colours'
            cand --json 'Print JSON, one nested object for each root'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'logkit;stats'= {
            cand --table 'Table of the entries'
            cand --level 'Only this level'
            cand --last 'Only the last 90s, 30m, 24h, 7d, 2w; bare numbers are hours'
            cand --since 'Not before this time: 2026-11-20, 2026-11-20T19:54 (UTC unless it has an offset) or 2h'
            cand --until 'Before this time'
            cand -f 'Functions whose name has this in it'
            cand --function 'Functions whose name has this in it'
            cand --env 'Only this environment'
            cand --trace 'Only this trace'
            cand --search 'Entries with these words anywhere'
            cand --grep 'Entries with exactly this text anywhere, whatever its case'
            cand --slow 'Calls that took this many milliseconds or more'
            cand --sort 'What the first row has most of'
            cand -n 'Most functions shown'
            cand --limit 'Most functions shown'
            cand --color 'Colours'
            cand -e 'Only errors'
            cand --errors 'Only errors'
            cand --json 'Print JSON, one object a line'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'logkit;diff'= {
            cand --table 'Table of the entries'
            cand -f 'Functions whose name has this in it'
            cand --function 'Functions whose name has this in it'
            cand --color 'Colours'
            cand --json 'Print JSON, one object a line'
            cand --exit-code 'Exit with 1 when there are differences'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'logkit;export'= {
            cand --table 'Table of the entries'
            cand --level 'Only this level'
            cand --last 'Only the last 90s, 30m, 24h, 7d, 2w; bare numbers are hours'
            cand --since 'Not before this time: 2026-11-20, 2026-11-20T19:54 (UTC unless it has an offset) or 2h'
            cand --until 'Before this time'
            cand -f 'Functions whose name has this in it'
            cand --function 'Functions whose name has this in it'
            cand --env 'Only this environment'
            cand --trace 'Only this trace'
            cand --search 'Entries with these words anywhere'
            cand --grep 'Entries with exactly this text anywhere, whatever its case'
            cand --slow 'Calls that took this many milliseconds or more'
            cand --to 'Where entries go, such as csv:FILE, md:FILE, json:FILE or db:FILE; may be repeated'
            cand --color 'Colours'
            cand -e 'Only errors'
            cand --errors 'Only errors'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'logkit;prune'= {
            cand --table 'Table of the entries'
            cand --older-than 'Delete entries older than 90s, 30m, 24h, 7d, 2w; bare numbers are hours'
            cand --keep 'Delete all but the newest N entries'
            cand --color 'Colours'
            cand --dry-run 'Only say how many would be deleted'
            cand --vacuum 'Give the freed space back to the disk'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'logkit;replay'= {
            cand --table 'Table of the entries'
            cand --level 'Only this level'
            cand --last 'Only the last 90s, 30m, 24h, 7d, 2w; bare numbers are hours'
            cand --since 'Not before this time: 2026-11-20, 2026-11-20T19:54 (UTC unless it has an offset) or 2h'
            cand --until 'Before this time'
            cand -f 'Functions whose name has this in it'
            cand --function 'Functions whose name has this in it'
            cand --env 'Only this environment'
            cand --trace 'Only this trace'
            cand --search 'Entries with these words anywhere'
            cand --grep 'Entries with exactly this text anywhere, whatever its case'
            cand --slow 'Calls that took this many milliseconds or more'
            cand -n 'Most commands shown'
            cand --limit 'Most commands shown'
            cand --color 'Colours'
            cand -e 'Only errors'
            cand --errors 'Only errors'
            cand --dry-run 'Only print the commands; nothing is run'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'logkit;serve'= {
            cand --host 'Address of both services; LOGKIT_HOST and LOGKIT_GRPC_HOST otherwise'
            cand --port 'Port of HTTP'
            cand --grpc-port 'Port of gRPC'
            cand --api-key 'Key that callers must have; in LOGKIT_API_KEY other users cannot see it'
            cand --db 'Database of the entries; logkit_central.db in LOGKIT_LOG_DIR otherwise'
            cand --tls-cert 'Certificates in PEM form: then both services speak TLS'
            cand --tls-key 'Key of the certificate'
            cand --allow-origin 'Origin whose web pages may call, such as https://example.org; may be repeated'
            cand --color 'Colours'
            cand --no-grpc 'Do not speak gRPC'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'logkit;version'= {
            cand --color 'Colours'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'logkit;completions'= {
            cand --color 'Colours'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'logkit;help'= {
            cand run 'Run a command and log how it went'
            cand logs 'Show what was logged, newest first'
            cand tail 'Show what comes in until interrupted'
            cand tree 'Show the calls of a trace as a tree'
            cand stats 'Count calls, errors and times of each function'
            cand diff 'Compare what calls returned in two versions'
            cand export 'Copy entries into another database or file'
            cand prune 'Delete old entries'
            cand replay 'Show the commands that were logged as commands to type'
            cand serve 'Take entries over HTTP and gRPC, and show them on a page'
            cand version 'Print the version'
            cand completions 'Print the script that makes a shell complete commands'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'logkit;help;run'= {
        }
        &'logkit;help;logs'= {
        }
        &'logkit;help;tail'= {
        }
        &'logkit;help;tree'= {
        }
        &'logkit;help;stats'= {
        }
        &'logkit;help;diff'= {
        }
        &'logkit;help;export'= {
        }
        &'logkit;help;prune'= {
        }
        &'logkit;help;replay'= {
        }
        &'logkit;help;serve'= {
        }
        &'logkit;help;version'= {
        }
        &'logkit;help;completions'= {
        }
        &'logkit;help;help'= {
        }
    ]
    $completions[$command]
}
