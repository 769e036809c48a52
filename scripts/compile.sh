#!/bin/bash
# Compiles the packages of all programs into Go's build cache, as scripts/build.sh does, and links none. It needs nothing but Go, so
# that it can run while other packages are installed. What is embedded is compiled again when it has been built.
set -euo pipefail
cd "$(dirname "$0")/.."
CGO_ENABLED=0 go list -export -deps -trimpath -gcflags=all=-dwarf=false ./cmd/... >/dev/null
