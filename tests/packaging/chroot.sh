#!/usr/bin/env bash
# Installs a package in a clean system, serves from it, upgrades it, removes it.
#
# usage: chroot.sh PACKAGE SYSTEM
#
# PACKAGE is one for Debian, an RPM, or an archive with install.sh; SYSTEM a folder that debootstrap made, of which a
# copy is used.
set -euo pipefail
(($# == 2)) || exit 2

root=$(mktemp -d)
package=$(readlink -f "$1")
server=
inside() {
    unshare --mount --pid --fork --mount-proc="$root/proc" \
        chroot "$root" /usr/bin/env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive "$@"
}
clean() {
    [[ -z $server ]] || kill -KILL "$server" 2>/dev/null || true
    rm -rf "$root"
}
trap clean EXIT
fail() {
    echo "FAILED: $1" >&2
    exit 1
}
files() {
    (cd "$root" && find . -xdev -path ./proc -prune -o -path ./dev -prune -o -path ./tmp -prune -o -print | sort)
}

cp -a "$2/." "$root"
kind=${package##*.}
cp "$package" "$root/tmp/llmsrv.$kind"

# The commands of each kind, and what stays of settings when it is removed without purging.
unit=$root/usr/lib/systemd/system/llmsrv-network.service
kept=etc/llmsrv/llmsrv.env
case $kind in
deb)
    install_it() { inside dpkg -i /tmp/llmsrv.deb; }
    remove_it() { inside dpkg -r llmsrv; }
    ;;
rpm)
    # Debian's rpm does not know the packages of the system. Its scripts run inside.
    rpm=(unshare --mount --pid --fork --mount-proc="$root/proc" rpm --force-debian --root "$root" --dbpath /var/lib/rpm)
    install_it() { "${rpm[@]}" --upgrade --replacepkgs --nodeps "$package"; }
    remove_it() { "${rpm[@]}" --erase --nodeps llmsrv; }
    kept=etc/llmsrv/llmsrv.env.rpmsave
    ;;
gz)
    unit=$root/etc/systemd/system/llmsrv-network.service
    install_it() { inside sh -c 'cd /tmp && tar xzf llmsrv.gz && llmsrv-*/install.sh'; }
    remove_it() { inside /usr/local/share/llmsrv/uninstall.sh; }
    ;;
*) fail "there is no way to install $package" ;;
esac
files >"$root/tmp/before"

install_it
inside id llmsrv
for group in video render; do
    inside id -nG llmsrv | grep -qw $group || fail "the user is not in the group $group"
done
[[ $(inside stat -c '%U %a' /var/lib/llmsrv/models) == "llmsrv 750" ]] || fail "the folder of the models"
inside llmsrv --version
inside logkit --version
[[ ! -e $root/etc/systemd/system/multi-user.target.wants/llmsrv-network.service ]] || fail "it was enabled"

# As the unit starts it: same user, same settings, same command.
environment=()
while IFS= read -r setting; do
    setting=${setting//%S//var/lib}
    setting=${setting//%t//run}
    environment+=("$setting")
done < <(sed -n 's/^Environment=//p' "$unit")
read -ra start < <(sed -n 's/^ExecStart=//p' "$unit")
while IFS= read -r setting; do
    environment+=("$setting")
done < <(grep -v '^#' "$root/etc/llmsrv/llmsrv.env" | grep .)
printf '%s\n' "${environment[@]}" | grep -q '^LLMSRV_HOST=' && fail "the package binds elsewhere than the default"
inside install -d -o llmsrv -g llmsrv /run/llmsrv
# Only the port is another: something else may serve at the usual one.
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
unshare --mount --mount-proc="$root/proc" chroot "$root" /usr/bin/setpriv \
    --reuid llmsrv --regid llmsrv --init-groups --no-new-privs \
    /usr/bin/env -i PATH=/usr/local/bin:/usr/bin:/bin "${environment[@]}" "${start[@]}" -p "$port" 2>"$root/tmp/server.log" &
server=$!
for _ in $(seq 300); do
    curl -fs "http://127.0.0.1:$port/api/version" >/dev/null && break
    kill -0 "$server" 2>/dev/null || break
    sleep 0.2
done
curl -fsS "http://127.0.0.1:$port/api/version" || {
    cat "$root/tmp/server.log" >&2
    fail "it does not serve"
}
answer=$(curl -fsS "http://127.0.0.1:$port/api/generate" -d '{"model": "default", "prompt": "Hello!", "stream": false}')
grep -q '"response":"[^"]' <<<"$answer" || fail "it does not answer: $answer"
# Addresses of sockets that listen, in hexadecimal: 0100007F is 127.0.0.1.
listens=$(awk -v port="$(printf ':%04X' "$port")" '$4 == "0A" && substr($2, length($2) - 4) == port {print $2}' \
    "/proc/$server/net/tcp" "/proc/$server/net/tcp6")
[[ $listens == 0100007F:* && $(wc -l <<<"$listens") == 1 ]] || fail "it listens at $listens"
kill -TERM "$server"
wait "$server" || fail "it did not end well"
server=
[[ -d $root/var/lib/llmsrv/models/blobs ]] || fail "the models are not where the unit says"

# An upgrade keeps what the user wrote.
echo LLMSRV_KEEP_ALIVE=1h >>"$root/etc/llmsrv/llmsrv.env"
install_it
grep -qx LLMSRV_KEEP_ALIVE=1h "$root/etc/llmsrv/llmsrv.env" || fail "the settings were overwritten"

remove_it
[[ -f $root/$kept ]] || fail "removing it took the settings"
if [[ $kind == deb ]]; then
    echo secret >"$root/var/lib/llmsrv/keys.toml"
    mkdir -p "$root/var/cache/llmsrv/a" "$root/var/log/llmsrv"
    echo more >"$root/etc/llmsrv/config.toml"
    inside dpkg --purge llmsrv
fi
files >"$root/tmp/after"
# Accounts, and what the manager of packages itself writes, are the system's.
left=$(comm -13 "$root/tmp/before" "$root/tmp/after" |
    grep -vE '^\./(var/lib/(dpkg|rpm)(/|$)|var/log/dpkg\.log|etc/(passwd|group|shadow|gshadow)-?$|etc/\.pwd\.lock$)' || true)
grep -q '^\./var/lib/llmsrv/models/blobs/sha256-' <<<"$left" || fail "removing it took the models"
# Only purging, which Debian has, takes settings and state.
others=$(grep -vE '^\./var/lib/llmsrv(/models(/.*)?)?$' <<<"$left" || true)
if [[ $kind == rpm ]]; then
    # Folders that systems with RPM have.
    others=$(grep -vE '^\./usr/share/(bash-completion|elvish|fish|zsh|man)(/[^/]*)?$|^\./usr/lib/(sysusers|tmpfiles)\.d$' <<<"$others" || true)
fi
if [[ $kind != deb ]]; then
    others=$(grep -vE "^\./(etc/llmsrv|$kept|var/lib/llmsrv/.*|run/llmsrv)$" <<<"$others" || true)
fi
[[ -z $others ]] || fail "removing it left: $others"
echo "the package installs, serves, is upgraded and removed"
