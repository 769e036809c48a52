#!/bin/bash
# Uses the built SDK in Bun, in Deno and in the oldest Node.js that the package promises, with the server at
# MODBOX_URL and its MODBOX_API_TOKEN.
# The last line is "N passed, N failed".
set -uo pipefail
cd "$(dirname "$0")" || exit
: "${MODBOX_URL:?}" "${MODBOX_API_TOKEN:?}"
../../../../scripts/npm-ci.sh . || exit
passed=0 failed=0
promised=$(node_modules/.bin/node --print "require('modbox-sdk/package.json').engines.node")
if [ ">=$(node_modules/.bin/node --print 'process.versions.node.split(".")[0]')" != "$promised" ]; then
	echo "the package promises Node.js $promised, and package.json has $(node_modules/.bin/node --version)"
	exit 1
fi
for runtime in node bun "deno run --quiet --no-prompt --allow-env --allow-net --allow-read"; do
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
# The agent that the README shows first.
if got=$(node_modules/.bin/node --input-type=module - <../../../../examples/typescript/agent.mjs 2>&1) && [[ $got == $'80\ntrue\nline 1\nline 2\nline 3\nhttp'* ]]; then
	passed=$((passed + 1))
	echo "✔ agent.mjs in node $(node_modules/.bin/node --version)"
else
	failed=$((failed + 1))
	echo "✖ agent.mjs in node"
	echo "  ${got//$'\n'/$'\n  '}"
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
