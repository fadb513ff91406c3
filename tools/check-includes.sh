#!/usr/bin/env bash
# Arrows go down only: which folder of src/ may include which others. A folder may always include itself.
set -euo pipefail
cd "$(dirname "$0")/.."

allowed() { # folder → what it may include
    case $1 in
    base) ;;
    db | objects | hands | images) echo base ;;
    http) echo base db ;;
    sandbox) echo base images hands/frames.h ;;
    parent) echo base sandbox ;;
    broker) echo base parent ;;
    harness) echo base parent ;;
    session) echo base images/name.h db objects hands/frames.h sandbox parent broker harness ;;
    jobs | webhooks) echo base db objects session ;;
    api) echo base images/name.h db objects http sandbox parent broker harness session jobs webhooks ;;
    cli) echo base hands/frames.h images db objects http sandbox parent broker harness session api ;;
    *) return 1 ;;
    esac
}

status=0
while IFS=: read -r file include; do
    folder=${file#src/}
    folder=${folder%%/*}
    target=${include%%/*}
    if ! may=$(allowed "$folder"); then
        echo "$file: the folder src/$folder is not in the table of tools/check-includes.sh" >&2
        status=1
    elif [ "$target" != "$folder" ] && [[ " $may " != *" $target "* ]] && [[ " $may " != *" $include "* ]]; then
        echo "$file includes \"$include\", but src/$folder may only include: ${may:-nothing}" >&2
        status=1
    fi
done < <(grep -rEo '^#include "[^"]+"' src --include='*.[ch]' | sed 's/#include "\(.*\)"/\1/')
exit $status
