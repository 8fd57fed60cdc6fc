
using namespace System.Management.Automation
using namespace System.Management.Automation.Language

Register-ArgumentCompleter -Native -CommandName 'llmsrv' -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)

    $commandElements = $commandAst.CommandElements
    $command = @(
        'llmsrv'
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
        'llmsrv' {
            [CompletionResult]::new('--host', '--host', [CompletionResultType]::ParameterName, 'Address of the server: host, :port, host:port, [v6]:port or a URL')
            [CompletionResult]::new('-p', '-p', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--models', '--models', [CompletionResultType]::ParameterName, 'Folder of the models')
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Settings file instead of the usual one')
            [CompletionResult]::new('--env-file', '--env-file', [CompletionResultType]::ParameterName, 'Also read NAME=value lines from this file; the environment is stronger')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more: -v debug, -vv trace')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('-V', '-V ', [CompletionResultType]::ParameterName, 'Print version')
            [CompletionResult]::new('--version', '--version', [CompletionResultType]::ParameterName, 'Print version')
            [CompletionResult]::new('serve', 'serve', [CompletionResultType]::ParameterValue, 'Serve models over HTTP')
            [CompletionResult]::new('run', 'run', [CompletionResultType]::ParameterValue, 'Chat with a model, or ask it one thing')
            [CompletionResult]::new('list', 'list', [CompletionResultType]::ParameterValue, 'List the models')
            [CompletionResult]::new('ls', 'ls', [CompletionResultType]::ParameterValue, 'List the models')
            [CompletionResult]::new('show', 'show', [CompletionResultType]::ParameterValue, 'Show what is known of a model')
            [CompletionResult]::new('create', 'create', [CompletionResultType]::ParameterValue, 'Make a model from a Modelfile, another model or model files')
            [CompletionResult]::new('ps', 'ps', [CompletionResultType]::ParameterValue, 'List the loaded models')
            [CompletionResult]::new('stop', 'stop', [CompletionResultType]::ParameterValue, 'Unload a model from memory, or stop the server')
            [CompletionResult]::new('status', 'status', [CompletionResultType]::ParameterValue, 'Show what runs, where, and what it has loaded')
            [CompletionResult]::new('test', 'test', [CompletionResultType]::ParameterValue, 'Check the running server, step by step')
            [CompletionResult]::new('examples', 'examples', [CompletionResultType]::ParameterValue, 'Print requests that work as they are, for curl, Python and JavaScript')
            [CompletionResult]::new('pull', 'pull', [CompletionResultType]::ParameterValue, 'Bring models in from a registry or the Hugging Face hub')
            [CompletionResult]::new('push', 'push', [CompletionResultType]::ParameterValue, 'Send a model to its registry')
            [CompletionResult]::new('cp', 'cp', [CompletionResultType]::ParameterValue, 'Copy a model under a new name')
            [CompletionResult]::new('rm', 'rm', [CompletionResultType]::ParameterValue, 'Remove models')
            [CompletionResult]::new('logkit', 'logkit', [CompletionResultType]::ParameterValue, 'Log commands and calls, and look at what was logged')
            [CompletionResult]::new('bench', 'bench', [CompletionResultType]::ParameterValue, 'Measure how fast models run here, beside the machine''s limits and other engines')
            [CompletionResult]::new('key', 'key', [CompletionResultType]::ParameterValue, 'Make, list and remove the keys of those who may call the server')
            [CompletionResult]::new('config', 'config', [CompletionResultType]::ParameterValue, 'Print every setting, its value and where it came from')
            [CompletionResult]::new('completions', 'completions', [CompletionResultType]::ParameterValue, 'Print the script that makes a shell complete commands and model names')
            [CompletionResult]::new('version', 'version', [CompletionResultType]::ParameterValue, 'Print versions of the program and of the running server')
            [CompletionResult]::new('generate', 'generate', [CompletionResultType]::ParameterValue, 'Write man pages, completions and the settings reference')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'llmsrv;serve' {
            [CompletionResult]::new('--preload', '--preload', [CompletionResultType]::ParameterName, 'Models to load at the start, between commas')
            [CompletionResult]::new('--keep-alive', '--keep-alive', [CompletionResultType]::ParameterName, 'How long an idle model stays loaded, such as 30m; -1 = forever')
            [CompletionResult]::new('--parallel', '--parallel', [CompletionResultType]::ParameterName, 'Requests one model answers at the same time')
            [CompletionResult]::new('--host', '--host', [CompletionResultType]::ParameterName, 'Address of the server: host, :port, host:port, [v6]:port or a URL')
            [CompletionResult]::new('-p', '-p', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--models', '--models', [CompletionResultType]::ParameterName, 'Folder of the models')
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Settings file instead of the usual one')
            [CompletionResult]::new('--env-file', '--env-file', [CompletionResultType]::ParameterName, 'Also read NAME=value lines from this file; the environment is stronger')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more: -v debug, -vv trace')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'llmsrv;run' {
            [CompletionResult]::new('--system', '--system', [CompletionResultType]::ParameterName, 'System prompt')
            [CompletionResult]::new('--format', '--format', [CompletionResultType]::ParameterName, 'Form of the answer: `json`, or a JSON Schema')
            [CompletionResult]::new('-o', '-o', [CompletionResultType]::ParameterName, 'Set an option of the model, such as temperature=0 (may be repeated)')
            [CompletionResult]::new('--option', '--option', [CompletionResultType]::ParameterName, 'Set an option of the model, such as temperature=0 (may be repeated)')
            [CompletionResult]::new('--keepalive', '--keepalive', [CompletionResultType]::ParameterName, 'How long the model stays loaded afterwards, such as 30m; -1 = forever')
            [CompletionResult]::new('--think', '--think', [CompletionResultType]::ParameterName, 'Let the model think first')
            [CompletionResult]::new('--host', '--host', [CompletionResultType]::ParameterName, 'Address of the server: host, :port, host:port, [v6]:port or a URL')
            [CompletionResult]::new('-p', '-p', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--models', '--models', [CompletionResultType]::ParameterName, 'Folder of the models')
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Settings file instead of the usual one')
            [CompletionResult]::new('--env-file', '--env-file', [CompletionResultType]::ParameterName, 'Also read NAME=value lines from this file; the environment is stronger')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours')
            [CompletionResult]::new('--nothink', '--nothink', [CompletionResultType]::ParameterName, 'Do not let the model think first')
            [CompletionResult]::new('--hidethinking', '--hidethinking', [CompletionResultType]::ParameterName, 'Do not show what the model thinks')
            [CompletionResult]::new('--nowordwrap', '--nowordwrap', [CompletionResultType]::ParameterName, 'Do not wrap lines at the width of the terminal')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Print timings after the answer')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more: -v debug, -vv trace')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'llmsrv;list' {
            [CompletionResult]::new('--host', '--host', [CompletionResultType]::ParameterName, 'Address of the server: host, :port, host:port, [v6]:port or a URL')
            [CompletionResult]::new('-p', '-p', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--models', '--models', [CompletionResultType]::ParameterName, 'Folder of the models')
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Settings file instead of the usual one')
            [CompletionResult]::new('--env-file', '--env-file', [CompletionResultType]::ParameterName, 'Also read NAME=value lines from this file; the environment is stronger')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print JSON')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more: -v debug, -vv trace')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'llmsrv;ls' {
            [CompletionResult]::new('--host', '--host', [CompletionResultType]::ParameterName, 'Address of the server: host, :port, host:port, [v6]:port or a URL')
            [CompletionResult]::new('-p', '-p', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--models', '--models', [CompletionResultType]::ParameterName, 'Folder of the models')
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Settings file instead of the usual one')
            [CompletionResult]::new('--env-file', '--env-file', [CompletionResultType]::ParameterName, 'Also read NAME=value lines from this file; the environment is stronger')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print JSON')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more: -v debug, -vv trace')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'llmsrv;show' {
            [CompletionResult]::new('--host', '--host', [CompletionResultType]::ParameterName, 'Address of the server: host, :port, host:port, [v6]:port or a URL')
            [CompletionResult]::new('-p', '-p', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--models', '--models', [CompletionResultType]::ParameterName, 'Folder of the models')
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Settings file instead of the usual one')
            [CompletionResult]::new('--env-file', '--env-file', [CompletionResultType]::ParameterName, 'Also read NAME=value lines from this file; the environment is stronger')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours')
            [CompletionResult]::new('--modelfile', '--modelfile', [CompletionResultType]::ParameterName, 'Only the Modelfile')
            [CompletionResult]::new('--parameters', '--parameters', [CompletionResultType]::ParameterName, 'Only the parameters')
            [CompletionResult]::new('--template', '--template', [CompletionResultType]::ParameterName, 'Only the prompt template')
            [CompletionResult]::new('--system', '--system', [CompletionResultType]::ParameterName, 'Only the system prompt')
            [CompletionResult]::new('--license', '--license', [CompletionResultType]::ParameterName, 'Only the licence')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Also all metadata and tensors')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print JSON')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more: -v debug, -vv trace')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'llmsrv;create' {
            [CompletionResult]::new('-f', '-f', [CompletionResultType]::ParameterName, 'The Modelfile; `-` is standard input [default: Modelfile, unless --from is given]')
            [CompletionResult]::new('--file', '--file', [CompletionResultType]::ParameterName, 'The Modelfile; `-` is standard input [default: Modelfile, unless --from is given]')
            [CompletionResult]::new('--from', '--from', [CompletionResultType]::ParameterName, 'A model, a GGUF file or a folder, in place of what the Modelfile says')
            [CompletionResult]::new('-Q', '-Q ', [CompletionResultType]::ParameterName, 'Quantize the weights: Q4_K_M, Q8_0, F16, ...')
            [CompletionResult]::new('--quantize', '--quantize', [CompletionResultType]::ParameterName, 'Quantize the weights: Q4_K_M, Q8_0, F16, ...')
            [CompletionResult]::new('--host', '--host', [CompletionResultType]::ParameterName, 'Address of the server: host, :port, host:port, [v6]:port or a URL')
            [CompletionResult]::new('-p', '-p', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--models', '--models', [CompletionResultType]::ParameterName, 'Folder of the models')
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Settings file instead of the usual one')
            [CompletionResult]::new('--env-file', '--env-file', [CompletionResultType]::ParameterName, 'Also read NAME=value lines from this file; the environment is stronger')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours')
            [CompletionResult]::new('--copy', '--copy', [CompletionResultType]::ParameterName, 'Copy model files where they could be linked')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print the steps as JSON lines')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more: -v debug, -vv trace')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'llmsrv;ps' {
            [CompletionResult]::new('--host', '--host', [CompletionResultType]::ParameterName, 'Address of the server: host, :port, host:port, [v6]:port or a URL')
            [CompletionResult]::new('-p', '-p', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--models', '--models', [CompletionResultType]::ParameterName, 'Folder of the models')
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Settings file instead of the usual one')
            [CompletionResult]::new('--env-file', '--env-file', [CompletionResultType]::ParameterName, 'Also read NAME=value lines from this file; the environment is stronger')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print JSON')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more: -v debug, -vv trace')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'llmsrv;stop' {
            [CompletionResult]::new('--host', '--host', [CompletionResultType]::ParameterName, 'Address of the server: host, :port, host:port, [v6]:port or a URL')
            [CompletionResult]::new('-p', '-p', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--models', '--models', [CompletionResultType]::ParameterName, 'Folder of the models')
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Settings file instead of the usual one')
            [CompletionResult]::new('--env-file', '--env-file', [CompletionResultType]::ParameterName, 'Also read NAME=value lines from this file; the environment is stronger')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more: -v debug, -vv trace')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'llmsrv;status' {
            [CompletionResult]::new('--host', '--host', [CompletionResultType]::ParameterName, 'Address of the server: host, :port, host:port, [v6]:port or a URL')
            [CompletionResult]::new('-p', '-p', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--models', '--models', [CompletionResultType]::ParameterName, 'Folder of the models')
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Settings file instead of the usual one')
            [CompletionResult]::new('--env-file', '--env-file', [CompletionResultType]::ParameterName, 'Also read NAME=value lines from this file; the environment is stronger')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print it as JSON')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more: -v debug, -vv trace')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'llmsrv;test' {
            [CompletionResult]::new('--model', '--model', [CompletionResultType]::ParameterName, 'The model that answers')
            [CompletionResult]::new('--host', '--host', [CompletionResultType]::ParameterName, 'Address of the server: host, :port, host:port, [v6]:port or a URL')
            [CompletionResult]::new('-p', '-p', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--models', '--models', [CompletionResultType]::ParameterName, 'Folder of the models')
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Settings file instead of the usual one')
            [CompletionResult]::new('--env-file', '--env-file', [CompletionResultType]::ParameterName, 'Also read NAME=value lines from this file; the environment is stronger')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print the results as JSON')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more: -v debug, -vv trace')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'llmsrv;examples' {
            [CompletionResult]::new('-l', '-l', [CompletionResultType]::ParameterName, 'Only one language')
            [CompletionResult]::new('--language', '--language', [CompletionResultType]::ParameterName, 'Only one language')
            [CompletionResult]::new('--model', '--model', [CompletionResultType]::ParameterName, 'The model in the examples')
            [CompletionResult]::new('--host', '--host', [CompletionResultType]::ParameterName, 'Address of the server: host, :port, host:port, [v6]:port or a URL')
            [CompletionResult]::new('-p', '-p', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--models', '--models', [CompletionResultType]::ParameterName, 'Folder of the models')
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Settings file instead of the usual one')
            [CompletionResult]::new('--env-file', '--env-file', [CompletionResultType]::ParameterName, 'Also read NAME=value lines from this file; the environment is stronger')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print them as JSON')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more: -v debug, -vv trace')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'llmsrv;pull' {
            [CompletionResult]::new('--host', '--host', [CompletionResultType]::ParameterName, 'Address of the server: host, :port, host:port, [v6]:port or a URL')
            [CompletionResult]::new('-p', '-p', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--models', '--models', [CompletionResultType]::ParameterName, 'Folder of the models')
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Settings file instead of the usual one')
            [CompletionResult]::new('--env-file', '--env-file', [CompletionResultType]::ParameterName, 'Also read NAME=value lines from this file; the environment is stronger')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours')
            [CompletionResult]::new('--insecure', '--insecure', [CompletionResultType]::ParameterName, 'Allow plain http and unverified certificates for a host of a private network')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print each step as a line of JSON')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more: -v debug, -vv trace')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'llmsrv;push' {
            [CompletionResult]::new('--host', '--host', [CompletionResultType]::ParameterName, 'Address of the server: host, :port, host:port, [v6]:port or a URL')
            [CompletionResult]::new('-p', '-p', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--models', '--models', [CompletionResultType]::ParameterName, 'Folder of the models')
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Settings file instead of the usual one')
            [CompletionResult]::new('--env-file', '--env-file', [CompletionResultType]::ParameterName, 'Also read NAME=value lines from this file; the environment is stronger')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours')
            [CompletionResult]::new('--insecure', '--insecure', [CompletionResultType]::ParameterName, 'Allow plain http and unverified certificates for a host of a private network')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print each step as a line of JSON')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more: -v debug, -vv trace')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'llmsrv;cp' {
            [CompletionResult]::new('--host', '--host', [CompletionResultType]::ParameterName, 'Address of the server: host, :port, host:port, [v6]:port or a URL')
            [CompletionResult]::new('-p', '-p', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--models', '--models', [CompletionResultType]::ParameterName, 'Folder of the models')
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Settings file instead of the usual one')
            [CompletionResult]::new('--env-file', '--env-file', [CompletionResultType]::ParameterName, 'Also read NAME=value lines from this file; the environment is stronger')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more: -v debug, -vv trace')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'llmsrv;rm' {
            [CompletionResult]::new('--host', '--host', [CompletionResultType]::ParameterName, 'Address of the server: host, :port, host:port, [v6]:port or a URL')
            [CompletionResult]::new('-p', '-p', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--models', '--models', [CompletionResultType]::ParameterName, 'Folder of the models')
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Settings file instead of the usual one')
            [CompletionResult]::new('--env-file', '--env-file', [CompletionResultType]::ParameterName, 'Also read NAME=value lines from this file; the environment is stronger')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more: -v debug, -vv trace')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'llmsrv;logkit' {
            [CompletionResult]::new('--host', '--host', [CompletionResultType]::ParameterName, 'Address of the server: host, :port, host:port, [v6]:port or a URL')
            [CompletionResult]::new('-p', '-p', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--models', '--models', [CompletionResultType]::ParameterName, 'Folder of the models')
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Settings file instead of the usual one')
            [CompletionResult]::new('--env-file', '--env-file', [CompletionResultType]::ParameterName, 'Also read NAME=value lines from this file; the environment is stronger')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more: -v debug, -vv trace')
            break
        }
        'llmsrv;bench' {
            [CompletionResult]::new('--pp', '--pp', [CompletionResultType]::ParameterName, 'Lengths of prompts to read')
            [CompletionResult]::new('-n', '-n', [CompletionResultType]::ParameterName, 'Numbers of tokens to generate')
            [CompletionResult]::new('--tg', '--tg', [CompletionResultType]::ParameterName, 'Numbers of tokens to generate')
            [CompletionResult]::new('-d', '-d', [CompletionResultType]::ParameterName, 'Tokens that come before')
            [CompletionResult]::new('--depth', '--depth', [CompletionResultType]::ParameterName, 'Tokens that come before')
            [CompletionResult]::new('-b', '-b', [CompletionResultType]::ParameterName, 'Sequences to generate together')
            [CompletionResult]::new('--batch', '--batch', [CompletionResultType]::ParameterName, 'Sequences to generate together')
            [CompletionResult]::new('-r', '-r', [CompletionResultType]::ParameterName, 'Rounds of every test')
            [CompletionResult]::new('--rounds', '--rounds', [CompletionResultType]::ParameterName, 'Rounds of every test')
            [CompletionResult]::new('-t', '-t', [CompletionResultType]::ParameterName, 'Threads of the arithmetic [default: the setting, or one for each core]')
            [CompletionResult]::new('--threads', '--threads', [CompletionResultType]::ParameterName, 'Threads of the arithmetic [default: the setting, or one for each core]')
            [CompletionResult]::new('--peer', '--peer', [CompletionResultType]::ParameterName, 'Measure this command, too; {model}, {threads}, {pp}, {tg}, {depth} and {batch} are replaced')
            [CompletionResult]::new('--peer-python', '--peer-python', [CompletionResultType]::ParameterName, 'Measure llama.cpp, too, through the package llama-cpp-python of this interpreter')
            [CompletionResult]::new('--make-model', '--make-model', [CompletionResultType]::ParameterName, 'Write a model with random weights: 0.5b, 1b, 1.7b, 8b or tiny, or one of these with changes (1b:layers=4,vocab=4096)')
            [CompletionResult]::new('-Q', '-Q ', [CompletionResultType]::ParameterName, 'With --make-model: the type of the weights')
            [CompletionResult]::new('--quantize', '--quantize', [CompletionResultType]::ParameterName, 'With --make-model: the type of the weights')
            [CompletionResult]::new('-o', '-o', [CompletionResultType]::ParameterName, 'With --make-model: the file')
            [CompletionResult]::new('--output', '--output', [CompletionResultType]::ParameterName, 'With --make-model: the file')
            [CompletionResult]::new('--ready', '--ready', [CompletionResultType]::ParameterName, 'Load this file, compute one token, print the resident bytes')
            [CompletionResult]::new('--host', '--host', [CompletionResultType]::ParameterName, 'Address of the server: host, :port, host:port, [v6]:port or a URL')
            [CompletionResult]::new('-p', '-p', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--models', '--models', [CompletionResultType]::ParameterName, 'Folder of the models')
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Settings file instead of the usual one')
            [CompletionResult]::new('--env-file', '--env-file', [CompletionResultType]::ParameterName, 'Also read NAME=value lines from this file; the environment is stronger')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours')
            [CompletionResult]::new('--quick', '--quick', [CompletionResultType]::ParameterName, 'Only pp and tg: no first token, no new process, no HTTP')
            [CompletionResult]::new('--peer-unpacked', '--peer-unpacked', [CompletionResultType]::ParameterName, 'With --peer-python: also without packing the weights, which is faster for some models')
            [CompletionResult]::new('--limits', '--limits', [CompletionResultType]::ParameterName, 'Measure the limits of the machine and nothing else')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print one JSON document')
            [CompletionResult]::new('--markdown', '--markdown', [CompletionResultType]::ParameterName, 'Print a table for a document')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more: -v debug, -vv trace')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'llmsrv;key' {
            [CompletionResult]::new('--host', '--host', [CompletionResultType]::ParameterName, 'Address of the server: host, :port, host:port, [v6]:port or a URL')
            [CompletionResult]::new('-p', '-p', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--models', '--models', [CompletionResultType]::ParameterName, 'Folder of the models')
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Settings file instead of the usual one')
            [CompletionResult]::new('--env-file', '--env-file', [CompletionResultType]::ParameterName, 'Also read NAME=value lines from this file; the environment is stronger')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more: -v debug, -vv trace')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('add', 'add', [CompletionResultType]::ParameterValue, 'Make a key and print it; it cannot be shown again')
            [CompletionResult]::new('list', 'list', [CompletionResultType]::ParameterValue, 'List the keys')
            [CompletionResult]::new('ls', 'ls', [CompletionResultType]::ParameterValue, 'List the keys')
            [CompletionResult]::new('rm', 'rm', [CompletionResultType]::ParameterValue, 'Remove a key: it stops working')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'llmsrv;key;add' {
            [CompletionResult]::new('--role', '--role', [CompletionResultType]::ParameterName, 'What it allows')
            [CompletionResult]::new('--host', '--host', [CompletionResultType]::ParameterName, 'Address of the server: host, :port, host:port, [v6]:port or a URL')
            [CompletionResult]::new('-p', '-p', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--models', '--models', [CompletionResultType]::ParameterName, 'Folder of the models')
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Settings file instead of the usual one')
            [CompletionResult]::new('--env-file', '--env-file', [CompletionResultType]::ParameterName, 'Also read NAME=value lines from this file; the environment is stronger')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more: -v debug, -vv trace')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'llmsrv;key;list' {
            [CompletionResult]::new('--host', '--host', [CompletionResultType]::ParameterName, 'Address of the server: host, :port, host:port, [v6]:port or a URL')
            [CompletionResult]::new('-p', '-p', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--models', '--models', [CompletionResultType]::ParameterName, 'Folder of the models')
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Settings file instead of the usual one')
            [CompletionResult]::new('--env-file', '--env-file', [CompletionResultType]::ParameterName, 'Also read NAME=value lines from this file; the environment is stronger')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print JSON')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more: -v debug, -vv trace')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'llmsrv;key;ls' {
            [CompletionResult]::new('--host', '--host', [CompletionResultType]::ParameterName, 'Address of the server: host, :port, host:port, [v6]:port or a URL')
            [CompletionResult]::new('-p', '-p', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--models', '--models', [CompletionResultType]::ParameterName, 'Folder of the models')
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Settings file instead of the usual one')
            [CompletionResult]::new('--env-file', '--env-file', [CompletionResultType]::ParameterName, 'Also read NAME=value lines from this file; the environment is stronger')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print JSON')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more: -v debug, -vv trace')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'llmsrv;key;rm' {
            [CompletionResult]::new('--host', '--host', [CompletionResultType]::ParameterName, 'Address of the server: host, :port, host:port, [v6]:port or a URL')
            [CompletionResult]::new('-p', '-p', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--models', '--models', [CompletionResultType]::ParameterName, 'Folder of the models')
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Settings file instead of the usual one')
            [CompletionResult]::new('--env-file', '--env-file', [CompletionResultType]::ParameterName, 'Also read NAME=value lines from this file; the environment is stronger')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more: -v debug, -vv trace')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'llmsrv;key;help' {
            [CompletionResult]::new('add', 'add', [CompletionResultType]::ParameterValue, 'Make a key and print it; it cannot be shown again')
            [CompletionResult]::new('list', 'list', [CompletionResultType]::ParameterValue, 'List the keys')
            [CompletionResult]::new('rm', 'rm', [CompletionResultType]::ParameterValue, 'Remove a key: it stops working')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'llmsrv;key;help;add' {
            break
        }
        'llmsrv;key;help;list' {
            break
        }
        'llmsrv;key;help;rm' {
            break
        }
        'llmsrv;key;help;help' {
            break
        }
        'llmsrv;config' {
            [CompletionResult]::new('--host', '--host', [CompletionResultType]::ParameterName, 'Address of the server: host, :port, host:port, [v6]:port or a URL')
            [CompletionResult]::new('-p', '-p', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--models', '--models', [CompletionResultType]::ParameterName, 'Folder of the models')
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Settings file instead of the usual one')
            [CompletionResult]::new('--env-file', '--env-file', [CompletionResultType]::ParameterName, 'Also read NAME=value lines from this file; the environment is stronger')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours')
            [CompletionResult]::new('--changed', '--changed', [CompletionResultType]::ParameterName, 'Only settings that are not the default')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print JSON')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more: -v debug, -vv trace')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('check', 'check', [CompletionResultType]::ParameterValue, 'Look for mistakes in all places settings come from')
            [CompletionResult]::new('path', 'path', [CompletionResultType]::ParameterValue, 'Print where the settings file is, or would be')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'llmsrv;config;check' {
            [CompletionResult]::new('--host', '--host', [CompletionResultType]::ParameterName, 'Address of the server: host, :port, host:port, [v6]:port or a URL')
            [CompletionResult]::new('-p', '-p', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--models', '--models', [CompletionResultType]::ParameterName, 'Folder of the models')
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Settings file instead of the usual one')
            [CompletionResult]::new('--env-file', '--env-file', [CompletionResultType]::ParameterName, 'Also read NAME=value lines from this file; the environment is stronger')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more: -v debug, -vv trace')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'llmsrv;config;path' {
            [CompletionResult]::new('--host', '--host', [CompletionResultType]::ParameterName, 'Address of the server: host, :port, host:port, [v6]:port or a URL')
            [CompletionResult]::new('-p', '-p', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--models', '--models', [CompletionResultType]::ParameterName, 'Folder of the models')
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Settings file instead of the usual one')
            [CompletionResult]::new('--env-file', '--env-file', [CompletionResultType]::ParameterName, 'Also read NAME=value lines from this file; the environment is stronger')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more: -v debug, -vv trace')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'llmsrv;config;help' {
            [CompletionResult]::new('check', 'check', [CompletionResultType]::ParameterValue, 'Look for mistakes in all places settings come from')
            [CompletionResult]::new('path', 'path', [CompletionResultType]::ParameterValue, 'Print where the settings file is, or would be')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'llmsrv;config;help;check' {
            break
        }
        'llmsrv;config;help;path' {
            break
        }
        'llmsrv;config;help;help' {
            break
        }
        'llmsrv;completions' {
            [CompletionResult]::new('--host', '--host', [CompletionResultType]::ParameterName, 'Address of the server: host, :port, host:port, [v6]:port or a URL')
            [CompletionResult]::new('-p', '-p', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--models', '--models', [CompletionResultType]::ParameterName, 'Folder of the models')
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Settings file instead of the usual one')
            [CompletionResult]::new('--env-file', '--env-file', [CompletionResultType]::ParameterName, 'Also read NAME=value lines from this file; the environment is stronger')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more: -v debug, -vv trace')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'llmsrv;version' {
            [CompletionResult]::new('--host', '--host', [CompletionResultType]::ParameterName, 'Address of the server: host, :port, host:port, [v6]:port or a URL')
            [CompletionResult]::new('-p', '-p', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--models', '--models', [CompletionResultType]::ParameterName, 'Folder of the models')
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Settings file instead of the usual one')
            [CompletionResult]::new('--env-file', '--env-file', [CompletionResultType]::ParameterName, 'Also read NAME=value lines from this file; the environment is stronger')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print JSON')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more: -v debug, -vv trace')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'llmsrv;generate' {
            [CompletionResult]::new('--out', '--out', [CompletionResultType]::ParameterName, 'Folder below which man/, completions/ and docs/ are written')
            [CompletionResult]::new('--host', '--host', [CompletionResultType]::ParameterName, 'Address of the server: host, :port, host:port, [v6]:port or a URL')
            [CompletionResult]::new('-p', '-p', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the server')
            [CompletionResult]::new('--models', '--models', [CompletionResultType]::ParameterName, 'Folder of the models')
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Settings file instead of the usual one')
            [CompletionResult]::new('--env-file', '--env-file', [CompletionResultType]::ParameterName, 'Also read NAME=value lines from this file; the environment is stronger')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more: -v debug, -vv trace')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'llmsrv;help' {
            [CompletionResult]::new('serve', 'serve', [CompletionResultType]::ParameterValue, 'Serve models over HTTP')
            [CompletionResult]::new('run', 'run', [CompletionResultType]::ParameterValue, 'Chat with a model, or ask it one thing')
            [CompletionResult]::new('list', 'list', [CompletionResultType]::ParameterValue, 'List the models')
            [CompletionResult]::new('show', 'show', [CompletionResultType]::ParameterValue, 'Show what is known of a model')
            [CompletionResult]::new('create', 'create', [CompletionResultType]::ParameterValue, 'Make a model from a Modelfile, another model or model files')
            [CompletionResult]::new('ps', 'ps', [CompletionResultType]::ParameterValue, 'List the loaded models')
            [CompletionResult]::new('stop', 'stop', [CompletionResultType]::ParameterValue, 'Unload a model from memory, or stop the server')
            [CompletionResult]::new('status', 'status', [CompletionResultType]::ParameterValue, 'Show what runs, where, and what it has loaded')
            [CompletionResult]::new('test', 'test', [CompletionResultType]::ParameterValue, 'Check the running server, step by step')
            [CompletionResult]::new('examples', 'examples', [CompletionResultType]::ParameterValue, 'Print requests that work as they are, for curl, Python and JavaScript')
            [CompletionResult]::new('pull', 'pull', [CompletionResultType]::ParameterValue, 'Bring models in from a registry or the Hugging Face hub')
            [CompletionResult]::new('push', 'push', [CompletionResultType]::ParameterValue, 'Send a model to its registry')
            [CompletionResult]::new('cp', 'cp', [CompletionResultType]::ParameterValue, 'Copy a model under a new name')
            [CompletionResult]::new('rm', 'rm', [CompletionResultType]::ParameterValue, 'Remove models')
            [CompletionResult]::new('logkit', 'logkit', [CompletionResultType]::ParameterValue, 'Log commands and calls, and look at what was logged')
            [CompletionResult]::new('bench', 'bench', [CompletionResultType]::ParameterValue, 'Measure how fast models run here, beside the machine''s limits and other engines')
            [CompletionResult]::new('key', 'key', [CompletionResultType]::ParameterValue, 'Make, list and remove the keys of those who may call the server')
            [CompletionResult]::new('config', 'config', [CompletionResultType]::ParameterValue, 'Print every setting, its value and where it came from')
            [CompletionResult]::new('completions', 'completions', [CompletionResultType]::ParameterValue, 'Print the script that makes a shell complete commands and model names')
            [CompletionResult]::new('version', 'version', [CompletionResultType]::ParameterValue, 'Print versions of the program and of the running server')
            [CompletionResult]::new('generate', 'generate', [CompletionResultType]::ParameterValue, 'Write man pages, completions and the settings reference')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'llmsrv;help;serve' {
            break
        }
        'llmsrv;help;run' {
            break
        }
        'llmsrv;help;list' {
            break
        }
        'llmsrv;help;show' {
            break
        }
        'llmsrv;help;create' {
            break
        }
        'llmsrv;help;ps' {
            break
        }
        'llmsrv;help;stop' {
            break
        }
        'llmsrv;help;status' {
            break
        }
        'llmsrv;help;test' {
            break
        }
        'llmsrv;help;examples' {
            break
        }
        'llmsrv;help;pull' {
            break
        }
        'llmsrv;help;push' {
            break
        }
        'llmsrv;help;cp' {
            break
        }
        'llmsrv;help;rm' {
            break
        }
        'llmsrv;help;logkit' {
            break
        }
        'llmsrv;help;bench' {
            break
        }
        'llmsrv;help;key' {
            [CompletionResult]::new('add', 'add', [CompletionResultType]::ParameterValue, 'Make a key and print it; it cannot be shown again')
            [CompletionResult]::new('list', 'list', [CompletionResultType]::ParameterValue, 'List the keys')
            [CompletionResult]::new('rm', 'rm', [CompletionResultType]::ParameterValue, 'Remove a key: it stops working')
            break
        }
        'llmsrv;help;key;add' {
            break
        }
        'llmsrv;help;key;list' {
            break
        }
        'llmsrv;help;key;rm' {
            break
        }
        'llmsrv;help;config' {
            [CompletionResult]::new('check', 'check', [CompletionResultType]::ParameterValue, 'Look for mistakes in all places settings come from')
            [CompletionResult]::new('path', 'path', [CompletionResultType]::ParameterValue, 'Print where the settings file is, or would be')
            break
        }
        'llmsrv;help;config;check' {
            break
        }
        'llmsrv;help;config;path' {
            break
        }
        'llmsrv;help;completions' {
            break
        }
        'llmsrv;help;version' {
            break
        }
        'llmsrv;help;generate' {
            break
        }
        'llmsrv;help;help' {
            break
        }
    })

    $completions.Where{ $_.CompletionText -like "$wordToComplete*" } |
        Sort-Object -Property ListItemText
}
