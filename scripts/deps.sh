#!/bin/bash
# usage: scripts/deps.sh [--check]
# Writes cmd/NAME/deps.txt: the packages of other modules that each program links, so that a
# new one shows in a diff. With --check it compares the lists and writes nothing.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."

deps() { # NAME: prints the packages, without versions, which go.mod has
	GOOS=linux GOARCH=amd64 CGO_ENABLED=0 go list -deps \
		-f '{{if not .Standard}}{{with .Module}}{{if not .Main}}{{$.ImportPath}}{{end}}{{end}}{{end}}' "./cmd/$1" | sort
}

code=0
for name in modbox modbox-agent modbox-front modbox-sandbox; do
	list=$(deps "$name")
	if [ "${1:-}" != --check ]; then
		echo "$list" >"cmd/$name/deps.txt"
	elif ! diff "cmd/$name/deps.txt" - <<<"$list"; then
		echo "cmd/$name/deps.txt is out of date (< in the file, > linked): run scripts/deps.sh" >&2
		code=1
	fi
done
exit "$code"
