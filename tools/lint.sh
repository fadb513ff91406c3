#!/usr/bin/env bash
# make lint: includes go down, the format, clang-tidy and cppcheck, and the rules that a grep can hold.
#   tools/lint.sh           everything           tools/lint.sh --format   only the format
set -uo pipefail
cd "$(dirname "$0")/.."
status=0

format() {
    git ls-files '*.c' '*.h' | xargs clang-format --dry-run --Werror
}
if [ "${1:-}" = --format ]; then format; exit; fi

tidy() {
    local flags
    flags="-std=gnu17 -D_GNU_SOURCE -Isrc -DPM_VERSION=\"lint\" -DHANDS_PATH=\"build/pi-hands\"
        $(pkg-config --cflags libmicrohttpd jansson libsodium)"
    # shellcheck disable=SC2016,SC2086
    git ls-files 'src/*.c' | xargs -P "$(nproc)" -n 4 sh -c 'flags=$0; clang-tidy --quiet "$@" -- $flags' "$flags" 2>&1 |
        grep -vE '^[0-9]+ warnings? (generated|and)|^Suppressed|^Use -header-filter' | { ! grep .; }
}
# STYLE: no calls that cut or overflow silently.
banned() {
    ! git grep -nE '\b(strcpy|strcat|sprintf|gets|atoi|atol)\(' -- 'src/*.c'
}
step() { # name command…
    local name=$1
    shift
    if "$@"; then
        echo "ok    $name"
    else
        echo "bad   $name"
        status=1
    fi
}

step includes tools/check-includes.sh
step "banned calls" banned
step format format
step clang-tidy tidy
step cppcheck cppcheck --quiet --error-exitcode=1 --inline-suppr --std=c11 -Isrc -j "$(nproc)" \
    --enable=warning,portability --suppress=missingIncludeSystem --suppress=nullPointerOutOfMemory src
exit $status
