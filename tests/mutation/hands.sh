#!/usr/bin/env bash
# Are the tests of the hands worth anything? Seeds one fault after the other into a copy of src/hands, builds
# pi-hands there and runs the comparison with Pi's tools: at least NEEDED of the faults must be noticed. Prints
# which survived.
set -uo pipefail
cd "$(dirname "$0")/../.."
needed=9
work=$(mktemp -d)
chmod 755 "$work" # some tests go on as nobody
trap 'rm -rf "$work"' EXIT
mkdir "$work/build"
cp -a Makefile VERSION src tests tools "$work/"
cp -a build/hands build/pi-hands "$work/build/" || exit 1
ln -s "$PWD/build/runtime" "$work/build/runtime"

# The tool whose tests should notice it, the file, what sed changes there.
faults=(
    'bash text.c s/#define INSPECT_MAX 128/#define INSPECT_MAX 12/'
    'read text.h s/#define TEXT_MAX_LINES 2000/#define TEXT_MAX_LINES 1999/'
    'edit edit_match.c s/c <= 0x2015/c <= 0x2012/'
    'read tool_read.c s/text_number(stop + 1, b));/text_number(stop, b));/'
    'bash tool_bash.c s/exited with code %d/exited with status %d/'
    'write file_io.c s/O_WRONLY | O_CREAT | O_TRUNC/O_WRONLY | O_CREAT/'
    'ls tool_ls.c s/continue; .. as Pi does: a dangling.*/break;/'
    'grep tool_grep.c s/number <= s->window_end/number < s->window_end/'
    'grep tool_grep.c s/#define LINE_MAX_UNITS 500/#define LINE_MAX_UNITS 501/'
    'find ignore.c s/rule->keeps = true;/rule->keeps = false;/'
    'find glob.c s/return add_set(g, all_bytes(false), next);/return add_set(g, all_bytes(true), next);/'
    'find tool_find.c s/w->entries > w->limit;/w->entries >= w->limit;/'
)

suite_of() {
    case $1 in
    bash | read | write | edit) echo tools-diff ;;
    *) echo tools-diff-search ;;
    esac
}
passes() { # tool
    (cd "$work" && timeout 300 build/runtime/node/bin/node --test --test-name-pattern="^$1 " \
        "tests/e2e/$(suite_of "$1").test.mjs" >"$work/log" 2>&1)
}
# A suite that is red without a fault would notice every one.
for tool in bash read write edit ls grep find; do
    passes $tool && continue
    echo "The tests of $tool fail without any fault:" >&2
    tail -20 "$work/log" >&2
    exit 1
done

noticed=0
for fault in "${faults[@]}"; do
    read -r tool file change <<<"$fault"
    sed -i "$change" "$work/src/hands/$file"
    if cmp -s "$work/src/hands/$file" "src/hands/$file"; then
        echo "The fault no longer fits src/hands/$file: $change" >&2
        exit 1
    fi
    if ! make -s -C "$work" build/pi-hands >"$work/log" 2>&1; then
        echo "The fault does not build: $change" >&2
        tail -5 "$work/log" >&2
        exit 1
    fi
    if passes "$tool"; then
        echo "survived  $file: $change"
    else
        noticed=$((noticed + 1))
        echo "noticed   $file: $change"
    fi
    cp -p "src/hands/$file" "$work/src/hands/$file"
    touch "$work/src/hands/$file"
done
echo "$noticed of ${#faults[@]} faults noticed"
[ "$noticed" -ge "$needed" ]
