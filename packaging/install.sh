#!/usr/bin/env bash
# Installs a program: itself, man pages, completions, scripts, and for the system the service (which is not started).
# Running it again brings everything up to date.
# Whoever says `sh`, which may be a smaller shell, means this file.
[ -n "${BASH_VERSION-}" ] || exec bash "$0" "$@"
set -euo pipefail

usage() {
    cat <<'END'
usage: install.sh [OPTION]... [FILE]

FILE is an archive that packaging/archive made, or the program itself [default: the program beside this script, else
that of target/release].

  --prefix DIR    where to install [default: /usr/local]
  --user          for this user alone: the prefix is ~/.local, and there is no service
  --no-service    leave the service out
  --dry-run       only say what would be done
  -h, --help      print this

DESTDIR stands before all paths, for those who make packages.
uninstall.sh takes the same options and removes what this one installed.
END
}

fail() {
    echo "error: $1" >&2
    exit "${2:-1}"
}

here=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
file='' prefix=/usr/local service=yes run='' for_user='' options=()
while (($#)); do
    case $1 in
    # `--binary FILE` is how a file was given before.
    --binary | --prefix)
        (($# > 1)) || fail "$1 needs a value" 2
        if [[ $1 == --prefix ]]; then
            prefix=$2
            options+=("$1" "$2")
        else
            file=$2
        fi
        shift
        ;;
    --user | --no-service | --dry-run)
        options+=("$1")
        case $1 in
        --user) for_user=yes ;;
        --no-service) service='' ;;
        --dry-run) run='echo would run:' ;;
        esac
        ;;
    -h | --help)
        usage
        exit
        ;;
    -*)
        usage >&2
        fail "unknown option $1" 2
        ;;
    *)
        [[ -z $file ]] || fail "one file, not two: $file and $1" 2
        file=$1
        ;;
    esac
    shift
done
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT

# An archive has a script of its own, which fits it.
if [[ $file == *.tar.gz || $file == *.tgz ]]; then
    [[ -f $file ]] || fail "there is no file $file"
    tar --extract --gzip --no-same-owner --file "$file" --directory "$made" || fail "$file is no whole archive"
    unpacked=("$made"/llmsrv-*/install.sh)
    [[ -x ${unpacked[0]} ]] || fail "$file is no archive of llmsrv"
    "${unpacked[0]}" "${options[@]}"
    exit
fi
if [[ $for_user ]]; then
    prefix=${HOME:?}/.local service=''
fi
[[ $prefix == /* ]] || fail "--prefix $prefix: give the whole path, from / on" 2
for built in "$here/llmsrv" "$here/../target/release/llmsrv"; do
    [[ -z $file && -x $built ]] && file=$built
done
[[ -n $file ]] || fail "there is no program yet: cargo build --release"
[[ -f $file ]] || fail "there is no file $file"
file=$(readlink -f "$file")
root=${DESTDIR-}
if [[ -z $run && -z $root && -z $for_user && $EUID -ne 0 && ! -w $prefix ]]; then
    fail "$prefix belongs to another user: use sudo, --user, or --prefix with a folder of yours"
fi

# Man pages and completions come from the program: they fit it.
if [[ ! -x $file ]]; then
    # As it comes from a download.
    install -m 755 "$file" "$made/llmsrv"
    file=$made/llmsrv
fi
"$file" generate --out "$made" || fail "$file is no program for this system"

list=$root$prefix/share/llmsrv/installed
new=$made/installed
# Copies a file and writes its path down, after those of folders that this makes.
put() {
    folders "$(dirname "$3")"
    $run install -D -m "$1" "$2" "$root$3"
    echo "$3" >>"$new"
}
folders() {
    if [[ $1 != / && ! -d $root$1 ]]; then
        folders "$(dirname "$1")"
        echo "$1/" >>"$new"
    fi
}

# In two steps: a program that runs cannot be written to, but replaced.
put 755 "$file" "$prefix/bin/.llmsrv.new"
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

# What an older version had and this one has not. Folders that it made are still ours.
if [[ -f $list ]]; then
    while IFS= read -r old; do
        if [[ $old == */ ]]; then
            echo "$old" >>"$new"
        elif ! grep -qxF -- "$old" "$new"; then
            $run rm -f "$root$old"
        fi
    done <"$list"
fi
$run install -D -m 644 "$new" "$list"

if [[ -z $run ]]; then
    version=$("$root$prefix/bin/llmsrv" -V)
    echo "installed $version in $prefix"
    [[ :$PATH: == *":$prefix/bin:"* ]] || echo "add it to your PATH: export PATH=$prefix/bin:\$PATH"
    [[ -z $service ]] || echo "start the service: systemctl enable --now llmsrv-network"
fi
