#!/bin/bash
# Drives the server at MODBOX_URL with MODBOX_API_TOKEN through the published npm
# client e2b, its newest line and an older one, its command line and ComputeSDK, over plain HTTP. Needs
# node, npm and script (of util-linux or bsdutils).
# E2B_TESTS chooses files. The last line is "N passed, N failed".
set -uo pipefail
cd "$(dirname "$0")" || exit
: "${MODBOX_URL:?}" "${MODBOX_API_TOKEN:?}"
npm ci --silent --no-audit --no-fund || exit 1
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# The client keeps connections open for a while, for which the end of a file of tests must not wait.
# shellcheck disable=SC2086 # a list
node --test --test-force-exit --test-reporter=tap --test-timeout=600000 ${E2B_TESTS:-./*.test.mjs} >"$log"
code=$?
[ "$code" = 0 ] || cat "$log"
passed=$(awk '/^# pass /{print $3}' "$log") failed=$(awk '/^# (fail|cancelled) /{n+=$3} END{print n+0}' "$log")
echo "${passed:-0} passed, ${failed:-1} failed"
exit "$code"
