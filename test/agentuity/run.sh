#!/bin/bash
# Drives the server at MODBOX_URL with MODBOX_API_TOKEN through the published npm
# client @agentuity/server and the published command line @agentuity/cli, and runs
# the code of the product's documentation. Needs node and npm. AGENTUITY_TESTS
# chooses files. The last line is "N passed, N failed".
set -uo pipefail
cd "$(dirname "$0")" || exit
: "${MODBOX_URL:?}" "${MODBOX_API_TOKEN:?}"
../../scripts/npm-ci.sh . || exit 1
# Not ci: it refuses a lock file without what other platforms would need.
NPM_INSTALL="install --no-save --ignore-scripts" ../../scripts/npm-ci.sh cli || exit 1
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# shellcheck disable=SC2086 # a list
node --test --test-reporter=tap --test-timeout=1800000 ${AGENTUITY_TESTS:-./*.test.mjs} >"$log"
code=$?
[ "$code" = 0 ] || cat "$log"
passed=$(awk '/^# pass /{print $3}' "$log") failed=$(awk '/^# (fail|cancelled) /{n+=$3} END{print n+0}' "$log")
echo "${passed:-0} passed, ${failed:-1} failed"
exit "$code"
