#!/bin/bash
# Tests the SDKs against the server at MODBOX_URL.
set -euo pipefail
cd "$(dirname "$0")/.."
code=0
[ -d sdk/typescript/node_modules ] || npm ci --no-audit --no-fund --prefix sdk/typescript || code=1
npm run test:real --prefix sdk/typescript || code=1
sdk/python/test.sh real || code=1
exit "$code"
