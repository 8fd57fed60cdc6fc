#!/bin/sh
# Tests graphics cards; `llmsrv testgpu --help` lists the options.
# The program is looked for beside this script, then on the PATH.
llmsrv=$(dirname -- "$(readlink -f -- "$0")")/llmsrv
[ -x "$llmsrv" ] || llmsrv=$(command -v llmsrv) || {
    echo "error: llmsrv is neither beside $0 nor on the PATH" >&2
    exit 127
}
exec "$llmsrv" testgpu "$@"
