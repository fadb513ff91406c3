#!/usr/bin/env bash
# make test: what CI runs. Unit tests, fuzz targets (their seeds and a fixed number of inputs each), API tests and
# end-to-end tests, all with AddressSanitizer and UBSan. Logs are in build/test-logs. The last line reads "N passed, N failed".
#   tools/test.sh          that        tools/test.sh --full   also ThreadSanitizer, fuzzing, the bare-machine test
#   tools/test.sh --only WORD          only the test files whose path holds WORD
#   tools/test.sh --one KIND FILE      (used by the above) one test file
set -uo pipefail
cd "$(dirname "$0")/.."
logs=build/test-logs
node=build/runtime/node/bin/node
unit_limit=180 file_limit=420 fuzz_seconds=60
export SAN=${SAN:-address}

# The counts of one test program go to LOG.counts as "passed failed skipped".
count_unit() { # log exit-status
    local passed failed skipped
    passed=$(sed -n 's/.*\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$1" | tail -1)
    failed=$(sed -n 's/.*\[  FAILED  \] \([0-9]*\) test.*/\1/p' "$1" | tail -1)
    skipped=$(sed -n 's/.*\[  SKIPPED \] \([0-9]*\) test.*/\1/p' "$1" | tail -1)
    # It died, or a sanitizer spoke after the last test.
    if [ "$2" != 0 ] && [ "${failed:-0}" = 0 ]; then failed=1; fi
    echo "${passed:-0} ${failed:-0} ${skipped:-0}"
}
node_count() { sed -n "s/^# $2 \([0-9]*\)/\1/p" "$1" | tail -1 | grep . || echo 0; }
count_node() {
    local failed=$(($(node_count "$1" fail) + $(node_count "$1" cancelled)))
    if [ "$2" != 0 ] && [ "$failed" = 0 ]; then failed=1; fi
    echo "$(node_count "$1" pass) $failed $(node_count "$1" skipped)"
}

# What failed in a log, a few lines each: the name of the test and what it said.
failures_of() { # log
    grep -qE '^ *not ok |\[  FAILED  \]|\[  ERROR   \]' "$1" || { tail -n 12 "$1"; return; }
    # A suite that failed only repeats its tests ("subtestsFailed").
    awk '/^ *not ok /{name = $0; left = 14; held = ""}
         left > 0 {held = held $0 "\n"; left--; if (/subtestsFailed/) {held = ""; left = 0}
                   if (left == 0 || /^ *(stack|\.\.\.)/) {printf "%s", held; held = ""; left = 0}}
         /\[  (ERROR   |FAILED  )\]/ {print}' "$1" | grep -vE '^ *(---|\.\.\.|duration_ms|type:)' | head -n 40
}

count_fuzz() {
    case $2 in
    0) echo "1 0 0" ;;
    77) echo "0 0 1" ;; # it cannot be had here, and says why
    *) echo "0 1 0" ;;
    esac
}

run_one() { # kind file
    local kind=$1 file=$2 name log status began=$SECONDS counts runs
    name=$(basename "$file" .mjs)
    log=$logs/$SAN-$kind-${name%.test}.log
    case $kind in
    unit) timeout -k 5 $unit_limit "$file" >"$log" 2>&1 ;;
    fuzz)
        runs=$(sed -n 's,^/\* runs: \([0-9]*\) \*/$,\1,p' "tests/fuzz/$name.c") # of those that take longer
        env -u ASAN_OPTIONS timeout -k 5 $unit_limit "$file" ${runs:+"-runs=$runs"} "tests/fuzz/corpus/$name" \
            >"$log" 2>&1
        ;;
    node) PI_MANAGED_BIN=$PWD/build/$SAN/pi-managed timeout -k 5 $file_limit "$node" --test \
        --test-reporter=tap "$file" >"$log" 2>&1 ;;
    esac
    status=$?
    counts=$(count_"$kind" "$log" $status)
    echo "$counts" >"$log.counts"
    read -r passed failed skipped <<<"$counts"
    if [ $status = 124 ] || [ $status = 137 ]; then echo "It hung and was ended after its time limit." >>"$log"; fi
    printf '%-5s %-5s %-34s %4d passed%s%s  (%d s)\n' "$([ "$failed" = 0 ] && echo ok || echo BAD)" "$kind" "${name%.test}" \
        "$passed" "$([ "$failed" = 0 ] || echo ", $failed failed")" \
        "$([ "$skipped" = 0 ] || echo ", $skipped skipped")" $((SECONDS - began))
    if [ "$failed" != 0 ]; then
        failures_of "$log" >"$log.failures"
        echo "----- from $log"
        sed 's/^/  | /' "$log.failures"
        echo "-----"
    fi
}
if [ "${1:-}" = --one ]; then run_one "$2" "$3"; exit 0; fi

full=no only=
while [ $# -gt 0 ]; do
    case $1 in
    --full) full=yes ;;
    --only) only=$2; shift ;;
    *) echo "tools/test.sh: there is no option $1" >&2; exit 2 ;;
    esac
    shift
done

passed=0 failed=0 skipped=0
add() { passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3)); }

# A check that is one test: name, log, command.
check() {
    local name=$1 log=$logs/$1.log began=$SECONDS
    shift
    if "$@" >"$log" 2>&1; then
        printf '%-5s %-40s  (%d s)\n' ok "$name" $((SECONDS - began))
        add 1 0 0
        return 0
    fi
    printf '%-5s %-40s  (%d s)\n----- the end of %s\n' BAD "$name" $((SECONDS - began)) "$log"
    tail -n 40 "$log" | sed 's/^/  | /'
    echo "-----"
    tail -n 12 "$log" >"$log.failures"
    add 0 1 0
    return 1
}
skip() { printf '%-5s %-40s  %s\n' skip "$1" "$2"; add 0 0 1; }

# Runs the files on standard input, $2 at a time, and adds up their counts.
run_files() { # kind parallel
    local counts
    grep -F -- "$only" | xargs -r -P "$2" -n 1 tools/test.sh --one "$1"
    for counts in "$logs/$SAN-$1-"*.counts; do
        [ -e "$counts" ] || continue
        # shellcheck disable=SC2046
        add $(cat "$counts")
        rm "$counts"
    done
}

# Sanitizer reports of the service's own processes, whose exit no test sees. They run as other users: 1777.
reports=$(mktemp -d)
chmod 1777 "$reports"
trap 'rm -rf "$reports"' EXIT
no_reports() {
    local report found=0
    for report in "$reports"/*; do
        # Not a report: the leak checker cannot attach to a process that is confined or being killed.
        grep -qE 'ERROR: |runtime error|WARNING: ThreadSanitizer' "$report" 2>/dev/null || continue
        cat "$report"
        found=1
    done
    rm -f "$reports"/*
    return $found
}

# In an archive the linker takes whichever comes first, silently.
no_symbol_twice() {
    ! nm -g --defined-only "build/$SAN/libpm.a" 2>/dev/null | awk 'NF == 3 && $2 ~ /[TDRBW]/ {print $3}' | sort | uniq -d | grep .
}

suites() { # the unit, API and end-to-end tests of one sanitizer build
    export ASAN_OPTIONS=detect_leaks=1:log_path=$reports/asan TSAN_OPTIONS=log_path=$reports/tsan
    local equipment fuzz=
    [ "$SAN" != address ] || fuzz=fuzz # a target has one thread
    equipment=$(for f in tests/support/*.c; do [ -e "$f" ] && echo "build/$SAN/${f%.c}"; done)
    echo "building with -fsanitize=$SAN …"
    # shellcheck disable=SC2086
    check "build-$SAN" make -j"$(nproc)" all unit $fuzz $equipment || return
    check "no-symbol-twice-$SAN" no_symbol_twice
    run_files unit 2 < <(for f in tests/unit/*.c; do echo "build/$SAN/${f%.c}"; done)
    [ -z "$fuzz" ] || run_files fuzz 2 < <(for f in tests/fuzz/*.c; do echo "build/$SAN/${f%.c}"; done)
    run_files node 2 < <(ls tests/support/*.test.mjs tests/api/*.test.mjs tests/e2e/*.test.mjs)
    check "no-sanitizer-reports-$SAN" no_reports
}

finish() {
    # Once more at the end, where whoever sees only the last lines finds it.
    local log
    for log in "$logs"/*.failures; do
        [ -e "$log" ] || continue
        echo "failed: $(basename "$log" .log.failures)"
        head -n 12 "$log" | cut -c 1-300 | sed 's/^/  | /'
    done
    [ "$skipped" = 0 ] && echo "$passed passed, $failed failed" || echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" = 0 ]
    exit
}

rm -rf "$logs"
mkdir -p "$logs"
export PI_MANAGED_TEST_FULL=$full # tests that can be more thorough are
check includes tools/check-includes.sh
if command -v clang-format >/dev/null; then
    check format tools/lint.sh --format
else
    skip format "clang-format is not installed"
fi
suites
[ $full = yes ] || finish

PI_MANAGED_TEST_FULL=no
SAN=thread
suites
for target in tests/fuzz/*.c; do
    name=$(basename "$target" .c)
    if ! command -v clang >/dev/null; then
        skip "fuzz-$name" "clang is not installed"
        continue
    fi
    check "fuzz-build-$name" env SAN= make "build/fuzz/$name" || continue
    mkdir -p "build/fuzz/corpus/$name" "tests/fuzz/corpus/$name"
    check "fuzz-$name" timeout -k 5 $((fuzz_seconds + 60)) "build/fuzz/$name" -max_total_time=$fuzz_seconds \
        -artifact_prefix="$logs/" "build/fuzz/corpus/$name" "tests/fuzz/corpus/$name"
done
check mutation-hands env SAN= tests/mutation/hands.sh
grep -h "^survived" "$logs/mutation-hands.log"
if [ "$(id -u)" = 0 ]; then
    check fresh tests/fresh.sh --user
else
    skip fresh "making a bare machine needs root"
fi
finish
