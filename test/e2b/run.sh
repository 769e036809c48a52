#!/bin/bash
# Drives servers through the published npm client e2b, its newest line and an older one, its command line and ComputeSDK:
# first by headers over plain HTTP, then by host names over TLS, and fails unless each method of the clients was called.
# Needs root, node, npm and script (of util-linux or bsdutils). E2B_TESTS chooses files, MODBOX_E2B_MODES the
# modes. The last line is "N passed, N failed".
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
scripts/npm-ci.sh test/e2b || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export E2B_CALLS=$work/calls
modes=${MODBOX_E2B_MODES:-headers hosts}
code=0 passed=0 failed=0
for mode in $modes; do
	with=scripts/with-server.sh
	if [ "$mode" = hosts ]; then with=test/e2b/hosts.sh; fi
	"$with" test/e2b/tests.sh | tee "$work/log" || code=1
	read -r p f < <(sed -nE 's/^([0-9]+) passed, ([0-9]+) failed$/\1 \2/p' "$work/log" | tail -n 1)
	if [ -z "${p:-}" ]; then p=0 f=1; fi
	passed=$((passed + p)) failed=$((failed + f)) p="" f=""
done
if [ "$modes" = "headers hosts" ] && [ -z "${E2B_TESTS:-}" ]; then
	if node test/e2b/covered.mjs; then passed=$((passed + 1)); else failed=$((failed + 1)) code=1; fi
fi
echo "$passed passed, $failed failed"
exit "$code"
