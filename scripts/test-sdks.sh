#!/bin/bash
# Tests the SDKs against the server at MODBOX_URL.
set -euo pipefail
cd "$(dirname "$0")/.."
code=0
npm run test:real --prefix sdk/typescript || code=1
sdk/python/test.sh real || code=1
exit "$code"
