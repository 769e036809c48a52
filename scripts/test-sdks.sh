#!/bin/bash
# Tests the SDKs against the server at MODBOX_URL, and a registry of their own.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d) pid=
trap '[ -z "$pid" ] || kill "$pid"; rm -rf "$work"' EXIT
go build -o "$work/registry" ./test/registry
# Its user and password are what the tests sign in with.
coproc registry { exec "$work/registry" ann pl4in-passw0rd; }
# shellcheck disable=SC2154 # coproc sets it
pid=$registry_PID
read -r MODBOX_TEST_REGISTRY <&"${registry[0]}"
export MODBOX_TEST_REGISTRY
code=0
scripts/npm-ci.sh sdk/typescript || code=1
npm run test:real --prefix sdk/typescript || code=1
sdk/typescript/test/runtimes/run.sh || code=1
sdk/python/test.sh real || code=1
exit "$code"
