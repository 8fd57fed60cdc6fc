
using namespace System.Management.Automation
using namespace System.Management.Automation.Language

Register-ArgumentCompleter -Native -CommandName 'logkit' -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)

    $commandElements = $commandAst.CommandElements
    $command = @(
        'logkit'
        for ($i = 1; $i -lt $commandElements.Count; $i++) {
            $element = $commandElements[$i]
            if ($element -isnot [StringConstantExpressionAst] -or
                $element.StringConstantType -ne [StringConstantType]::BareWord -or
                $element.Value.StartsWith('-') -or
                $element.Value -eq $wordToComplete) {
                break
        }
        $element.Value
    }) -join ';'

    $completions = @(switch ($command) {
        'logkit' {
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('-V', '-V ', [CompletionResultType]::ParameterName, 'Print version')
            [CompletionResult]::new('--version', '--version', [CompletionResultType]::ParameterName, 'Print version')
            [CompletionResult]::new('run', 'run', [CompletionResultType]::ParameterValue, 'Run a command and log how it went')
            [CompletionResult]::new('logs', 'logs', [CompletionResultType]::ParameterValue, 'Show what was logged, newest first')
            [CompletionResult]::new('tail', 'tail', [CompletionResultType]::ParameterValue, 'Show what comes in until interrupted')
            [CompletionResult]::new('tree', 'tree', [CompletionResultType]::ParameterValue, 'Show the calls of a trace as a tree')
            [CompletionResult]::new('stats', 'stats', [CompletionResultType]::ParameterValue, 'Count calls, errors and times of each function')
            [CompletionResult]::new('diff', 'diff', [CompletionResultType]::ParameterValue, 'Compare what calls returned in two versions')
            [CompletionResult]::new('export', 'export', [CompletionResultType]::ParameterValue, 'Copy entries into another database or file')
            [CompletionResult]::new('prune', 'prune', [CompletionResultType]::ParameterValue, 'Delete old entries')
            [CompletionResult]::new('replay', 'replay', [CompletionResultType]::ParameterValue, 'Show the commands that were logged as commands to type')
            [CompletionResult]::new('serve', 'serve', [CompletionResultType]::ParameterValue, 'Take entries over HTTP and gRPC, and show them on a page')
            [CompletionResult]::new('version', 'version', [CompletionResultType]::ParameterValue, 'Print the version')
            [CompletionResult]::new('completions', 'completions', [CompletionResultType]::ParameterValue, 'Print the script that makes a shell complete commands')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'logkit;run' {
            [CompletionResult]::new('--sink', '--sink', [CompletionResultType]::ParameterName, 'Where the entry goes, such as db:FILE, csv:FILE, md:FILE or json:FILE; may be repeated')
            [CompletionResult]::new('--env', '--env', [CompletionResultType]::ParameterName, 'Environment tag of the entry')
            [CompletionResult]::new('--timeout', '--timeout', [CompletionResultType]::ParameterName, 'End the command after this time, with exit status 124; bare numbers are seconds, 0 is never')
            [CompletionResult]::new('--cwd', '--cwd', [CompletionResultType]::ParameterName, 'Folder to run the command in')
            [CompletionResult]::new('--env-file', '--env-file', [CompletionResultType]::ParameterName, 'Read NAME=value lines from this file, for us and the command; the environment is stronger')
            [CompletionResult]::new('--max-output', '--max-output', [CompletionResultType]::ParameterName, 'Most bytes kept of each output stream: half of its start, half of its end')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours')
            [CompletionResult]::new('-p', '-p', [CompletionResultType]::ParameterName, 'Give the command our own streams: nothing of its output is kept')
            [CompletionResult]::new('--passthrough', '--passthrough', [CompletionResultType]::ParameterName, 'Give the command our own streams: nothing of its output is kept')
            [CompletionResult]::new('--tty', '--tty', [CompletionResultType]::ParameterName, 'Run the command in a terminal of its own, even if ours is none')
            [CompletionResult]::new('--no-tty', '--no-tty', [CompletionResultType]::ParameterName, 'Run the command with pipes, even in a terminal')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Do not print the entry on stderr')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Do not print the entry on stderr')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'logkit;logs' {
            [CompletionResult]::new('--table', '--table', [CompletionResultType]::ParameterName, 'Table of the entries')
            [CompletionResult]::new('--level', '--level', [CompletionResultType]::ParameterName, 'Only this level')
            [CompletionResult]::new('--last', '--last', [CompletionResultType]::ParameterName, 'Only the last 90s, 30m, 24h, 7d, 2w; bare numbers are hours')
            [CompletionResult]::new('--since', '--since', [CompletionResultType]::ParameterName, 'Not before this time: 2026-11-20, 2026-11-20T19:54 (UTC unless it has an offset) or 2h')
            [CompletionResult]::new('--until', '--until', [CompletionResultType]::ParameterName, 'Before this time')
            [CompletionResult]::new('-f', '-f', [CompletionResultType]::ParameterName, 'Functions whose name has this in it')
            [CompletionResult]::new('--function', '--function', [CompletionResultType]::ParameterName, 'Functions whose name has this in it')
            [CompletionResult]::new('--env', '--env', [CompletionResultType]::ParameterName, 'Only this environment')
            [CompletionResult]::new('--trace', '--trace', [CompletionResultType]::ParameterName, 'Only this trace')
            [CompletionResult]::new('--search', '--search', [CompletionResultType]::ParameterName, 'Entries with these words anywhere')
            [CompletionResult]::new('--grep', '--grep', [CompletionResultType]::ParameterName, 'Entries with exactly this text anywhere, whatever its case')
            [CompletionResult]::new('--slow', '--slow', [CompletionResultType]::ParameterName, 'Calls that took this many milliseconds or more')
            [CompletionResult]::new('-n', '-n', [CompletionResultType]::ParameterName, 'Most entries shown')
            [CompletionResult]::new('--limit', '--limit', [CompletionResultType]::ParameterName, 'Most entries shown')
            [CompletionResult]::new('--sql', '--sql', [CompletionResultType]::ParameterName, 'Answer this query, which cannot change anything')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours')
            [CompletionResult]::new('-e', '-e', [CompletionResultType]::ParameterName, 'Only errors')
            [CompletionResult]::new('--errors', '--errors', [CompletionResultType]::ParameterName, 'Only errors')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print JSON, one object a line')
            [CompletionResult]::new('--csv', '--csv', [CompletionResultType]::ParameterName, 'Print CSV with a header')
            [CompletionResult]::new('--follow', '--follow', [CompletionResultType]::ParameterName, 'Go on with what comes in until interrupted')
            [CompletionResult]::new('--stats', '--stats', [CompletionResultType]::ParameterName, 'Count instead of showing entries, as `logkit stats` does')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'logkit;tail' {
            [CompletionResult]::new('--table', '--table', [CompletionResultType]::ParameterName, 'Table of the entries')
            [CompletionResult]::new('--level', '--level', [CompletionResultType]::ParameterName, 'Only this level')
            [CompletionResult]::new('--last', '--last', [CompletionResultType]::ParameterName, 'Only the last 90s, 30m, 24h, 7d, 2w; bare numbers are hours')
            [CompletionResult]::new('--since', '--since', [CompletionResultType]::ParameterName, 'Not before this time: 2026-11-20, 2026-11-20T19:54 (UTC unless it has an offset) or 2h')
            [CompletionResult]::new('--until', '--until', [CompletionResultType]::ParameterName, 'Before this time')
            [CompletionResult]::new('-f', '-f', [CompletionResultType]::ParameterName, 'Functions whose name has this in it')
            [CompletionResult]::new('--function', '--function', [CompletionResultType]::ParameterName, 'Functions whose name has this in it')
            [CompletionResult]::new('--env', '--env', [CompletionResultType]::ParameterName, 'Only this environment')
            [CompletionResult]::new('--trace', '--trace', [CompletionResultType]::ParameterName, 'Only this trace')
            [CompletionResult]::new('--search', '--search', [CompletionResultType]::ParameterName, 'Entries with these words anywhere')
            [CompletionResult]::new('--grep', '--grep', [CompletionResultType]::ParameterName, 'Entries with exactly this text anywhere, whatever its case')
            [CompletionResult]::new('--slow', '--slow', [CompletionResultType]::ParameterName, 'Calls that took this many milliseconds or more')
            [CompletionResult]::new('-n', '-n', [CompletionResultType]::ParameterName, 'Entries shown at the start')
            [CompletionResult]::new('--limit', '--limit', [CompletionResultType]::ParameterName, 'Entries shown at the start')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours')
            [CompletionResult]::new('-e', '-e', [CompletionResultType]::ParameterName, 'Only errors')
            [CompletionResult]::new('--errors', '--errors', [CompletionResultType]::ParameterName, 'Only errors')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print JSON, one object a line')
            [CompletionResult]::new('--csv', '--csv', [CompletionResultType]::ParameterName, 'Print CSV with a header')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'logkit;tree' {
            [CompletionResult]::new('--table', '--table', [CompletionResultType]::ParameterName, 'Table of the entries')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print JSON, one nested object for each root')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'logkit;stats' {
            [CompletionResult]::new('--table', '--table', [CompletionResultType]::ParameterName, 'Table of the entries')
            [CompletionResult]::new('--level', '--level', [CompletionResultType]::ParameterName, 'Only this level')
            [CompletionResult]::new('--last', '--last', [CompletionResultType]::ParameterName, 'Only the last 90s, 30m, 24h, 7d, 2w; bare numbers are hours')
            [CompletionResult]::new('--since', '--since', [CompletionResultType]::ParameterName, 'Not before this time: 2026-11-20, 2026-11-20T19:54 (UTC unless it has an offset) or 2h')
            [CompletionResult]::new('--until', '--until', [CompletionResultType]::ParameterName, 'Before this time')
            [CompletionResult]::new('-f', '-f', [CompletionResultType]::ParameterName, 'Functions whose name has this in it')
            [CompletionResult]::new('--function', '--function', [CompletionResultType]::ParameterName, 'Functions whose name has this in it')
            [CompletionResult]::new('--env', '--env', [CompletionResultType]::ParameterName, 'Only this environment')
            [CompletionResult]::new('--trace', '--trace', [CompletionResultType]::ParameterName, 'Only this trace')
            [CompletionResult]::new('--search', '--search', [CompletionResultType]::ParameterName, 'Entries with these words anywhere')
            [CompletionResult]::new('--grep', '--grep', [CompletionResultType]::ParameterName, 'Entries with exactly this text anywhere, whatever its case')
            [CompletionResult]::new('--slow', '--slow', [CompletionResultType]::ParameterName, 'Calls that took this many milliseconds or more')
            [CompletionResult]::new('--sort', '--sort', [CompletionResultType]::ParameterName, 'What the first row has most of')
            [CompletionResult]::new('-n', '-n', [CompletionResultType]::ParameterName, 'Most functions shown')
            [CompletionResult]::new('--limit', '--limit', [CompletionResultType]::ParameterName, 'Most functions shown')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours')
            [CompletionResult]::new('-e', '-e', [CompletionResultType]::ParameterName, 'Only errors')
            [CompletionResult]::new('--errors', '--errors', [CompletionResultType]::ParameterName, 'Only errors')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print JSON, one object a line')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'logkit;diff' {
            [CompletionResult]::new('--table', '--table', [CompletionResultType]::ParameterName, 'Table of the entries')
            [CompletionResult]::new('-f', '-f', [CompletionResultType]::ParameterName, 'Functions whose name has this in it')
            [CompletionResult]::new('--function', '--function', [CompletionResultType]::ParameterName, 'Functions whose name has this in it')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print JSON, one object a line')
            [CompletionResult]::new('--exit-code', '--exit-code', [CompletionResultType]::ParameterName, 'Exit with 1 when there are differences')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'logkit;export' {
            [CompletionResult]::new('--table', '--table', [CompletionResultType]::ParameterName, 'Table of the entries')
            [CompletionResult]::new('--level', '--level', [CompletionResultType]::ParameterName, 'Only this level')
            [CompletionResult]::new('--last', '--last', [CompletionResultType]::ParameterName, 'Only the last 90s, 30m, 24h, 7d, 2w; bare numbers are hours')
            [CompletionResult]::new('--since', '--since', [CompletionResultType]::ParameterName, 'Not before this time: 2026-11-20, 2026-11-20T19:54 (UTC unless it has an offset) or 2h')
            [CompletionResult]::new('--until', '--until', [CompletionResultType]::ParameterName, 'Before this time')
            [CompletionResult]::new('-f', '-f', [CompletionResultType]::ParameterName, 'Functions whose name has this in it')
            [CompletionResult]::new('--function', '--function', [CompletionResultType]::ParameterName, 'Functions whose name has this in it')
            [CompletionResult]::new('--env', '--env', [CompletionResultType]::ParameterName, 'Only this environment')
            [CompletionResult]::new('--trace', '--trace', [CompletionResultType]::ParameterName, 'Only this trace')
            [CompletionResult]::new('--search', '--search', [CompletionResultType]::ParameterName, 'Entries with these words anywhere')
            [CompletionResult]::new('--grep', '--grep', [CompletionResultType]::ParameterName, 'Entries with exactly this text anywhere, whatever its case')
            [CompletionResult]::new('--slow', '--slow', [CompletionResultType]::ParameterName, 'Calls that took this many milliseconds or more')
            [CompletionResult]::new('--to', '--to', [CompletionResultType]::ParameterName, 'Where entries go, such as csv:FILE, md:FILE, json:FILE or db:FILE; may be repeated')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours')
            [CompletionResult]::new('-e', '-e', [CompletionResultType]::ParameterName, 'Only errors')
            [CompletionResult]::new('--errors', '--errors', [CompletionResultType]::ParameterName, 'Only errors')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'logkit;prune' {
            [CompletionResult]::new('--table', '--table', [CompletionResultType]::ParameterName, 'Table of the entries')
            [CompletionResult]::new('--older-than', '--older-than', [CompletionResultType]::ParameterName, 'Delete entries older than 90s, 30m, 24h, 7d, 2w; bare numbers are hours')
            [CompletionResult]::new('--keep', '--keep', [CompletionResultType]::ParameterName, 'Delete all but the newest N entries')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours')
            [CompletionResult]::new('--dry-run', '--dry-run', [CompletionResultType]::ParameterName, 'Only say how many would be deleted')
            [CompletionResult]::new('--vacuum', '--vacuum', [CompletionResultType]::ParameterName, 'Give the freed space back to the disk')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'logkit;replay' {
            [CompletionResult]::new('--table', '--table', [CompletionResultType]::ParameterName, 'Table of the entries')
            [CompletionResult]::new('--level', '--level', [CompletionResultType]::ParameterName, 'Only this level')
            [CompletionResult]::new('--last', '--last', [CompletionResultType]::ParameterName, 'Only the last 90s, 30m, 24h, 7d, 2w; bare numbers are hours')
            [CompletionResult]::new('--since', '--since', [CompletionResultType]::ParameterName, 'Not before this time: 2026-11-20, 2026-11-20T19:54 (UTC unless it has an offset) or 2h')
            [CompletionResult]::new('--until', '--until', [CompletionResultType]::ParameterName, 'Before this time')
            [CompletionResult]::new('-f', '-f', [CompletionResultType]::ParameterName, 'Functions whose name has this in it')
            [CompletionResult]::new('--function', '--function', [CompletionResultType]::ParameterName, 'Functions whose name has this in it')
            [CompletionResult]::new('--env', '--env', [CompletionResultType]::ParameterName, 'Only this environment')
            [CompletionResult]::new('--trace', '--trace', [CompletionResultType]::ParameterName, 'Only this trace')
            [CompletionResult]::new('--search', '--search', [CompletionResultType]::ParameterName, 'Entries with these words anywhere')
            [CompletionResult]::new('--grep', '--grep', [CompletionResultType]::ParameterName, 'Entries with exactly this text anywhere, whatever its case')
            [CompletionResult]::new('--slow', '--slow', [CompletionResultType]::ParameterName, 'Calls that took this many milliseconds or more')
            [CompletionResult]::new('-n', '-n', [CompletionResultType]::ParameterName, 'Most commands shown')
            [CompletionResult]::new('--limit', '--limit', [CompletionResultType]::ParameterName, 'Most commands shown')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours')
            [CompletionResult]::new('-e', '-e', [CompletionResultType]::ParameterName, 'Only errors')
            [CompletionResult]::new('--errors', '--errors', [CompletionResultType]::ParameterName, 'Only errors')
            [CompletionResult]::new('--dry-run', '--dry-run', [CompletionResultType]::ParameterName, 'Only print the commands; nothing is run')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'logkit;serve' {
            [CompletionResult]::new('--host', '--host', [CompletionResultType]::ParameterName, 'Address of both services; LOGKIT_HOST and LOGKIT_GRPC_HOST otherwise')
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of HTTP')
            [CompletionResult]::new('--grpc-port', '--grpc-port', [CompletionResultType]::ParameterName, 'Port of gRPC')
            [CompletionResult]::new('--api-key', '--api-key', [CompletionResultType]::ParameterName, 'Key that callers must have; in LOGKIT_API_KEY other users cannot see it')
            [CompletionResult]::new('--db', '--db', [CompletionResultType]::ParameterName, 'Database of the entries; logkit_central.db in LOGKIT_LOG_DIR otherwise')
            [CompletionResult]::new('--tls-cert', '--tls-cert', [CompletionResultType]::ParameterName, 'Certificates in PEM form: then both services speak TLS')
            [CompletionResult]::new('--tls-key', '--tls-key', [CompletionResultType]::ParameterName, 'Key of the certificate')
            [CompletionResult]::new('--allow-origin', '--allow-origin', [CompletionResultType]::ParameterName, 'Origin whose web pages may call, such as https://example.org; may be repeated')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours')
            [CompletionResult]::new('--no-grpc', '--no-grpc', [CompletionResultType]::ParameterName, 'Do not speak gRPC')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'logkit;version' {
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'logkit;completions' {
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'logkit;help' {
            [CompletionResult]::new('run', 'run', [CompletionResultType]::ParameterValue, 'Run a command and log how it went')
            [CompletionResult]::new('logs', 'logs', [CompletionResultType]::ParameterValue, 'Show what was logged, newest first')
            [CompletionResult]::new('tail', 'tail', [CompletionResultType]::ParameterValue, 'Show what comes in until interrupted')
            [CompletionResult]::new('tree', 'tree', [CompletionResultType]::ParameterValue, 'Show the calls of a trace as a tree')
            [CompletionResult]::new('stats', 'stats', [CompletionResultType]::ParameterValue, 'Count calls, errors and times of each function')
            [CompletionResult]::new('diff', 'diff', [CompletionResultType]::ParameterValue, 'Compare what calls returned in two versions')
            [CompletionResult]::new('export', 'export', [CompletionResultType]::ParameterValue, 'Copy entries into another database or file')
            [CompletionResult]::new('prune', 'prune', [CompletionResultType]::ParameterValue, 'Delete old entries')
            [CompletionResult]::new('replay', 'replay', [CompletionResultType]::ParameterValue, 'Show the commands that were logged as commands to type')
            [CompletionResult]::new('serve', 'serve', [CompletionResultType]::ParameterValue, 'Take entries over HTTP and gRPC, and show them on a page')
            [CompletionResult]::new('version', 'version', [CompletionResultType]::ParameterValue, 'Print the version')
            [CompletionResult]::new('completions', 'completions', [CompletionResultType]::ParameterValue, 'Print the script that makes a shell complete commands')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'logkit;help;run' {
            break
        }
        'logkit;help;logs' {
            break
        }
        'logkit;help;tail' {
            break
        }
        'logkit;help;tree' {
            break
        }
        'logkit;help;stats' {
            break
        }
        'logkit;help;diff' {
            break
        }
        'logkit;help;export' {
            break
        }
        'logkit;help;prune' {
            break
        }
        'logkit;help;replay' {
            break
        }
        'logkit;help;serve' {
            break
        }
        'logkit;help;version' {
            break
        }
        'logkit;help;completions' {
            break
        }
        'logkit;help;help' {
            break
        }
    })

    $completions.Where{ $_.CompletionText -like "$wordToComplete*" } |
        Sort-Object -Property ListItemText
}
