#!/bin/bash
# Runs the examples against the server at MODBOX_URL with MODBOX_API_TOKEN and
# checks what they print. The last line is "N passed, N failed".
set -uo pipefail
cd "$(dirname "$0")" || exit 1
: "${MODBOX_URL:?}" "${MODBOX_API_TOKEN:?}"

want='sandbox running
exit code 0
[2, 3, 5, 7, 11, 13, 17, 19, 23, 29]
line 1
line 2
line 3
count 10
sandbox destroyed'

typescript() {
	../scripts/npm-ci.sh ../sdk/typescript typescript && npm --silent run build --prefix ../sdk/typescript &&
		npm --silent start --prefix typescript
}
python() { PYTHONPATH=../sdk/python/src PYTHONDONTWRITEBYTECODE=1 "${PYTHON:-/usr/bin/python3}" python/primes.py; }
typescript_agent() { cd typescript && node agent.mjs | sed 's#^http.*#URL#'; }
agent() { PYTHONPATH=../sdk/python/src PYTHONDONTWRITEBYTECODE=1 "${PYTHON:-/usr/bin/python3}" python/agent.py | sed 's#^http.*#URL#'; }
# shellcheck disable=SC2034 # by its name, below
want_agent='80
True
line 1
line 2
line 3
URL'
# shellcheck disable=SC2034 # by its name, below
want_typescript_agent=${want_agent/True/true}
go_agent() { go run ./go/agent | sed 's#^http.*#URL#'; }
# shellcheck disable=SC2034 # by its name, below
want_go_agent=$want_typescript_agent
go_example() { go run ./go; }
curl_example() { curl/primes.sh; }

passed=0 failed=0
for example in typescript typescript_agent python agent go_example go_agent curl_example; do
	name=${example%_example} want_name=want_$example
	expected=${!want_name-$want}
	if got=$("$example" 2>&1) && [ "$got" = "$expected" ]; then
		passed=$((passed + 1))
		echo "ok   $name"
	else
		failed=$((failed + 1))
		echo "FAIL $name"
		diff <(echo "$expected") <(echo "$got") | sed 's/^/  /'
	fi
done

# Agents of other frameworks, whose models are scripted and whose tools run in real sandboxes.
integration() { ../scripts/npm-ci.sh "$1" && npm --silent test --prefix "$1"; }
for package in integrations/*/package.json; do
	name=${package%/package.json}
	if got=$(integration "$name" 2>&1); then
		passed=$((passed + 1))
		echo "ok   $name"
	else
		failed=$((failed + 1))
		echo "FAIL $name"
		echo "  ${got//$'\n'/$'\n  '}"
	fi
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
