#!/usr/bin/env bash
# A machine as bare as can be: a new minimal Debian root (pivot_root, not chroot), a clone in /root, then
# `make demo && make test` with nothing else typed. Needs root and mmdebstrap. What this machine needs to reach
# package registries (apt's and npm's settings, its certificates, its resolver) is copied into the root.
#   tests/fresh.sh           as root           tests/fresh.sh --user     afterwards as a plain user too
#   tests/fresh.sh --demo    only make demo    FRESH_ROOT=DIR            keep the root there and use it again
set -euo pipefail
cd "$(dirname "$0")/.."

user=no goals="demo test"
for option in "$@"; do
    case $option in
    --user) user=yes ;;
    --demo) goals=demo ;;
    *) echo "tests/fresh.sh: there is no option $option" >&2; exit 2 ;;
    esac
done
if [ "$(id -u)" != 0 ] || ! command -v mmdebstrap >/dev/null; then
    echo "tests/fresh.sh needs root and mmdebstrap (apt-get install mmdebstrap)." >&2
    exit 1
fi

root=${FRESH_ROOT:-$(mktemp -d /var/tmp/pi-managed-fresh-XXXXXX)}
[ -n "${FRESH_ROOT:-}" ] || trap 'rm -rf --one-file-system "$root"' EXIT

apt_sources() {
    find /etc/apt/sources.list /etc/apt/sources.list.d -type f \( -name '*.list' -o -name '*.sources' \) 2>/dev/null
}
make_root() {
    local suite options=()
    suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
    for file in /etc/apt/apt.conf.d/*; do
        # Settings of other programs refer to what a bare root has not got.
        grep -qiE 'dpkg::|post-invoke|pre-install' "$file" || options+=("--aptopt=$file")
    done
    # shellcheck disable=SC2046
    mmdebstrap --quiet --variant=minbase --include=git,make,ca-certificates "${options[@]}" \
        --customize-hook='mkdir -p "$1/usr/local/share/ca-certificates"' \
        --customize-hook='cp -r /usr/local/share/ca-certificates/. "$1/usr/local/share/ca-certificates/"' \
        --customize-hook='chroot "$1" update-ca-certificates >/dev/null 2>&1' \
        "$suite" "$root" $(apt_sources)
}
# npm's own settings, wherever this machine keeps them.
copy_npm_settings() {
    local file
    command -v npm >/dev/null || return 0
    mkdir -p "$root/etc/fresh"
    : >"$root/etc/fresh/npmrc"
    for file in "$(npm config get globalconfig)" "$(npm config get userconfig)"; do
        if [ -f "$file" ]; then cat "$file" >>"$root/etc/fresh/npmrc"; fi
    done
}

[ -e "$root/bin/make" ] || [ -e "$root/usr/bin/make" ] || { echo "making a bare root in $root …"; make_root; }
mkdir -p "$root/etc/fresh"
copy_npm_settings
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
[ -e "$root/etc/hosts" ] || printf '127.0.0.1 localhost\n::1 localhost\n' >"$root/etc/hosts" # installers write it
rm -rf "$root/root/pi-managed-backend"
git clone --quiet --no-hardlinks . "$root/root/pi-managed-backend"

cat >"$root/etc/fresh/inside.sh" <<'INSIDE'
set -euo pipefail
goals=$1 user=$2
export HOME=/root npm_config_userconfig=/etc/fresh/npmrc
cd /root/pi-managed-backend
for goal in $goals; do
    echo "== as root: make $goal"
    make "$goal"
done
[ "$user" = yes ] || exit 0
id person >/dev/null 2>&1 || useradd --create-home person
rm -rf /home/person/pi-managed-backend
cp -r /root/pi-managed-backend /home/person/
rm -rf /home/person/pi-managed-backend/build
chown -R person: /home/person/pi-managed-backend
for goal in $goals; do
    echo "== as a plain user: make $goal"
    setpriv --reuid person --regid person --init-groups env HOME=/home/person \
        make -C /home/person/pi-managed-backend "$goal"
done
INSIDE

cat >"$root/etc/fresh/pivot.sh" <<'PIVOT'
set -euo pipefail
root=$1
mount --make-rprivate /
mount --bind "$root" "$root"
cd "$root"
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=0755 tmpfs run
mkdir -p .old
pivot_root . .old
cd /
umount -l /.old
rmdir /.old
shift
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin TERM="${TERM:-dumb}" \
    NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt bash /etc/fresh/inside.sh "$@"
PIVOT

# Its own process ids: whatever a test might leave behind ends with this.
unshare --mount --pid --fork --kill-child --uts --ipc bash "$root/etc/fresh/pivot.sh" "$root" "$goals" "$user"
