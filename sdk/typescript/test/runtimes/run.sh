#!/bin/bash
# Uses the built SDK in Bun and in Deno with the server at MODBOX_URL and its MODBOX_API_TOKEN.
# The last line is "N passed, N failed".
set -uo pipefail
cd "$(dirname "$0")" || exit
: "${MODBOX_URL:?}" "${MODBOX_API_TOKEN:?}"
npm --silent --no-audit --no-fund ci || exit
passed=0 failed=0
for runtime in bun "deno run --quiet --no-prompt --allow-env --allow-net --allow-read"; do
	# shellcheck disable=SC2086 # a command with arguments
	if got=$(node_modules/.bin/$runtime scenario.mjs 2>&1) && [ "${got##*$'\n'}" = ok ]; then
		passed=$((passed + 1))
		echo "✔ ${runtime%% *} $("node_modules/.bin/${runtime%% *}" --version | head -n 1)"
	else
		failed=$((failed + 1))
		echo "✖ ${runtime%% *}"
		echo "  ${got//$'\n'/$'\n  '}"
	fi
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
