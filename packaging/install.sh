#!/usr/bin/env bash
# Installs a program that is built: itself, man pages, completions, scripts, and for the system the
# service (which is not started). Running it again brings everything up to date.
set -euo pipefail

usage() {
    cat <<'END'
usage: packaging/install.sh [OPTION]...

  --binary FILE   the program [default: that of target/dist, else of target/release]
  --prefix DIR    where to install [default: /usr/local]
  --user          for this user alone: the prefix is ~/.local, and there is no service
  --no-service    leave the service out
  --dry-run       only say what would be done
  -h, --help      print this

DESTDIR stands before all paths, for those who make packages.
packaging/uninstall.sh takes the same options and removes what this one installed.
END
}

fail() {
    echo "error: $1" >&2
    exit "${2:-1}"
}

here=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
binary='' prefix=/usr/local service=yes run='' for_user=''
while (($#)); do
    case $1 in
    --binary | --prefix)
        (($# > 1)) || fail "$1 needs a value" 2
        [[ $1 == --binary ]] && binary=$2 || prefix=$2
        shift
        ;;
    --user) for_user=yes ;;
    --no-service) service='' ;;
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
if [[ $for_user ]]; then
    prefix=${HOME:?}/.local service=''
fi
[[ $prefix == /* ]] || fail "--prefix $prefix: give the whole path, from / on" 2
if [[ -z $binary ]]; then
    for profile in dist release; do
        [[ -x $here/../target/$profile/llmsrv ]] && binary=$here/../target/$profile/llmsrv && break
    done
fi
[[ -n $binary ]] || fail "there is no program yet: cargo build --profile dist"
[[ -x $binary ]] || fail "$binary is no program"
root=${DESTDIR-}
if [[ -z $run && -z $root && -z $for_user && $EUID -ne 0 && ! -w $prefix ]]; then
    fail "$prefix belongs to another user: use sudo, --user, or --prefix with a folder of yours"
fi

# Man pages and completions come from the program: they fit it.
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
"$binary" generate --out "$made"

list=$root$prefix/share/llmsrv/installed
new=$made/installed
# Copies a file and writes its path down.
put() {
    $run install -D -m "$1" "$2" "$root$3"
    echo "$3" >>"$new"
}

# In two steps: a program that runs cannot be written to, but replaced.
put 755 "$binary" "$prefix/bin/.llmsrv.new"
sed -i '$d' "$new"
$run mv -f "$root$prefix/bin/.llmsrv.new" "$root$prefix/bin/llmsrv"
$run ln -sfn llmsrv "$root$prefix/bin/logkit"
printf '%s\n' "$prefix/bin/llmsrv" "$prefix/bin/logkit" >>"$new"
for page in "$made"/man/*.1; do
    put 644 "$page" "$prefix/share/man/man1/${page##*/}"
done
for name in llmsrv logkit; do
    put 644 "$made/completions/$name.bash" "$prefix/share/bash-completion/completions/$name"
    put 644 "$made/completions/_$name" "$prefix/share/zsh/site-functions/_$name"
    put 644 "$made/completions/$name.fish" "$prefix/share/fish/vendor_completions.d/$name.fish"
    put 644 "$made/completions/$name.elv" "$prefix/share/elvish/lib/$name.elv"
    put 644 "$made/completions/_$name.ps1" "$prefix/share/llmsrv/_$name.ps1"
done
for script in "$here"/scripts/*.sh; do
    put 755 "$script" "$prefix/share/llmsrv/scripts/${script##*/}"
done
put 755 "$here/uninstall.sh" "$prefix/share/llmsrv/uninstall.sh"
if [[ $service ]]; then
    sed "s|^ExecStart=/usr/bin/llmsrv|ExecStart=$prefix/bin/llmsrv|" \
        "$here/systemd/llmsrv-network.service" >"$made/llmsrv-network.service"
    put 644 "$made/llmsrv-network.service" /etc/systemd/system/llmsrv-network.service
    put 644 "$here/sysusers.d/llmsrv.conf" /etc/sysusers.d/llmsrv.conf
    put 644 "$here/tmpfiles.d/llmsrv.conf" /etc/tmpfiles.d/llmsrv.conf
    # Settings are the user's from the first time on.
    if [[ ! -e $root/etc/llmsrv/llmsrv.env ]]; then
        $run install -D -m 644 "$here/llmsrv.env" "$root/etc/llmsrv/llmsrv.env"
    fi
    if [[ -z $root ]]; then
        $run systemd-sysusers llmsrv.conf
        $run systemd-tmpfiles --create llmsrv.conf
        if [[ -d /run/systemd/system ]]; then
            $run systemctl daemon-reload
        fi
    fi
fi

# What an older version had and this one has not.
if [[ -f $list ]]; then
    while IFS= read -r old; do
        grep -qxF -- "$old" "$new" || $run rm -f "$root$old"
    done <"$list"
fi
$run install -D -m 644 "$new" "$list"

if [[ -z $run ]]; then
    echo "installed $("$root$prefix/bin/llmsrv" --version) in $prefix"
    [[ :$PATH: == *":$prefix/bin:"* ]] || echo "put $prefix/bin into PATH"
    [[ -z $service ]] || echo "start the service: systemctl enable --now llmsrv-network"
fi
