#!/bin/bash
# Runs the package's tests: "test.sh unit", or "test.sh real" against the server
# at MODBOX_URL with MODBOX_API_TOKEN. They need httpx and wsproto (Debian:
# python3-httpx, python3-wsproto); PYTHON names an interpreter other than Debian's.
set -euo pipefail
cd "$(dirname "$0")/tests/${1:?unit or real}"
export PYTHONPATH=../../src PYTHONDONTWRITEBYTECODE=1
exec "${PYTHON:-/usr/bin/python3}" -m unittest -v
