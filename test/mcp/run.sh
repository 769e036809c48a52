#!/bin/bash
# Drives the server at MODBOX_URL with MODBOX_API_TOKEN through the official npm client
# @modelcontextprotocol/sdk, over HTTP and over the standard input and output of "modbox mcp". Needs
# node and npm. The last line is "N passed, N failed".
set -uo pipefail
cd "$(dirname "$0")" || exit
: "${MODBOX_URL:?}" "${MODBOX_API_TOKEN:?}" "${MODBOX_BIN:?}"
../../scripts/npm-ci.sh . || exit 1
log=$(mktemp)
trap 'rm -f "$log"' EXIT
node --test --test-reporter=tap --test-timeout=1800000 ./*.test.mjs >"$log"
code=$?
[ "$code" = 0 ] || cat "$log"
passed=$(awk '/^# pass /{print $3}' "$log") failed=$(awk '/^# (fail|cancelled) /{n+=$3} END{print n+0}' "$log")
echo "${passed:-0} passed, ${failed:-1} failed"
exit "$code"
