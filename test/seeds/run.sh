#!/bin/bash
# Runs the code of the product's documentation against the server at MODBOX_URL
# with MODBOX_API_TOKEN. Needs node, npm, and python3 with httpx (python3-httpx);
# PYTHON names another interpreter. The last line is "N passed, N failed".
set -euo pipefail
cd "$(dirname "$0")"
sdk=../../sdk/typescript
../../scripts/npm-ci.sh "$sdk" .
npm run --silent build --prefix "$sdk"
exec node run.mjs
