#!/usr/bin/env bash
# make demo: a real Pi session at work, from nothing. Starts the service on a new data directory and a free port,
# delegates a task, shows the run, and stops what it started. The rest is tools/demo.mjs.
#   DEMO_MODEL=provider/id   another model (needs that provider's key in the environment)
set -euo pipefail
cd "$(dirname "$0")/.."
exec build/runtime/node/bin/node tools/demo.mjs
