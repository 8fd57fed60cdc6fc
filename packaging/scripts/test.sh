#!/bin/sh
# Puts load on processors, memory and disks; `llmsrv test --help` lists the options.
# The program is looked for beside this script, then on the PATH.
llmsrv=$(dirname -- "$(readlink -f -- "$0")")/llmsrv
[ -x "$llmsrv" ] || llmsrv=$(command -v llmsrv) || {
    echo "error: llmsrv is neither beside $0 nor on the PATH" >&2
    exit 127
}
# Without options: four threads, then two gigabytes of memory, a minute each, then all disks.
[ $# -gt 0 ] || set -- --cpu 4 --mem 2GB --disk --duration 60s
exec "$llmsrv" test "$@"
