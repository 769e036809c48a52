#!/bin/bash
# Drives a browser in sandboxes of the server at MODBOX_URL, with MODBOX_API_TOKEN, by
# Playwright over their URLs, and opens pages of sandboxes in a browser of this machine.
# Needs node, npm and chromium-headless-shell.
# The last line is "N passed, N failed".
set -uo pipefail
cd "$(dirname "$0")" || exit
: "${MODBOX_URL:?}" "${MODBOX_API_TOKEN:?}"
../../scripts/npm-ci.sh ../../sdk/typescript . next && npm --silent run build --prefix ../../sdk/typescript || exit 1
log=$(mktemp)
trap 'rm -f "$log"' EXIT
node --test --test-reporter=tap --test-timeout=900000 ./*.test.mjs >"$log"
code=$?
[ "$code" = 0 ] || cat "$log"
passed=$(awk '/^# pass /{print $3}' "$log") failed=$(awk '/^# (fail|cancelled) /{n+=$3} END{print n+0}' "$log")
echo "${passed:-0} passed, ${failed:-1} failed"
exit "$code"
