#!/usr/bin/env bash
# make bench: every benchmark once, one after the other. Each prints its own lines; ratios within one run are what
# counts, the machine may be busy.
set -euo pipefail
cd "$(dirname "$0")/.."
for bench in tests/bench/*.c; do
    name=$(basename "$bench" .c)
    echo "== $name"
    "build/bench/$name"
done
for bench in tests/bench/*.mjs; do
    [ -e "$bench" ] || continue
    echo "== $(basename "$bench" .mjs)"
    build/runtime/node/bin/node "$bench"
done
