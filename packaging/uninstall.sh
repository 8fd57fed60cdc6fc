#!/usr/bin/env bash
# Removes what install.sh installed. Models, keys and settings stay where they are.
# Whoever says `sh`, which may be a smaller shell, means this file.
[ -n "${BASH_VERSION-}" ] || exec bash "$0" "$@"
set -euo pipefail

usage() {
    cat <<'END'
usage: uninstall.sh [--prefix DIR | --user] [--dry-run]

Removes what install.sh installed: by default from /usr/local, with --user from ~/.local.
Models, keys and settings stay.
END
}

fail() {
    echo "error: $1" >&2
    exit "${2:-1}"
}

prefix=/usr/local run=''
while (($#)); do
    case $1 in
    --prefix)
        (($# > 1)) || fail "$1 needs a value" 2
        prefix=$2
        shift
        ;;
    --user) prefix=${HOME:?}/.local ;;
    --dry-run) run='echo would run:' ;;
    -h | --help)
        usage
        exit
        ;;
    *)
        usage >&2
        fail "unknown option $1" 2
        ;;
    esac
    shift
done
root=${DESTDIR-}
list=$root$prefix/share/llmsrv/installed
if [[ ! -f $list ]]; then
    echo "nothing of llmsrv is installed in $prefix"
    exit
fi

unit=/etc/systemd/system/llmsrv-network.service
if [[ -z $root && -d /run/systemd/system ]] && grep -qxF "$unit" "$list"; then
    $run systemctl disable --now llmsrv-network.service || true
fi
mapfile -t paths <"$list"
for path in "${paths[@]}"; do
    [[ $path == */ ]] || $run rm -f "$root$path"
done
$run rm -f "$list"
# Folders that the installation made and that are empty now, the innermost first.
while IFS= read -r folder; do
    if [[ -d $root$folder ]]; then
        $run rmdir --ignore-fail-on-non-empty "$root$folder"
    fi
done < <(printf '%s\n' "${paths[@]}" | grep '/$' | sort -ru)
if [[ -z $root && -d /run/systemd/system ]] && [[ $prefix != "${HOME-}/.local" ]]; then
    $run systemctl daemon-reload || true
fi
if [[ -z $run ]]; then
    if [[ $prefix == "${HOME-}/.local" ]]; then
        echo "removed; models, keys and settings stay: ~/.local/share/llmsrv, ~/.config/llmsrv"
    else
        echo "removed; models, keys and settings stay: ~/.local/share/llmsrv, /var/lib/llmsrv, /etc/llmsrv"
    fi
fi
