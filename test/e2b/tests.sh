#!/bin/bash
# Runs the tests against the server at MODBOX_URL with MODBOX_API_TOKEN; with E2B_DOMAIN, as hosts.sh
# sets it, the clients know nothing else. E2B_TESTS chooses files. The last line is "N passed, N failed".
set -uo pipefail
shopt -s extglob
cd "$(dirname "$0")" || exit
: "${MODBOX_URL:?}" "${MODBOX_API_TOKEN:?}"
files=(!(hosts).test.mjs)
# What does not depend on how a client addresses a server is run once.
if [ -n "${E2B_DOMAIN:-}" ]; then files=({absent,code,files,hosts,process,requests,sandbox}.test.mjs); fi
# shellcheck disable=SC2206 # a list
if [ -n "${E2B_TESTS:-}" ]; then files=($E2B_TESTS); fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# The client keeps connections open for a while, for which the end of a file of tests must not wait.
node --test --test-force-exit --test-reporter=tap --test-timeout=600000 "${files[@]}" >"$log"
code=$?
[ "$code" = 0 ] || cat "$log"
if [ -n "${E2B_TIMES:-}" ]; then grep -E '^ *(ok|not ok) |duration_ms' "$log"; fi
passed=$(awk '/^# pass /{print $3}' "$log") failed=$(awk '/^# (fail|cancelled) /{n+=$3} END{print n+0}' "$log")
echo "${passed:-0} passed, ${failed:-1} failed"
exit "$code"
