#!/bin/bash
# Undoes what make quickstart and make build did, except installed packages and caches:
# sandboxes, the server, its control groups, its files, and the build results.
set -euo pipefail
source "$(dirname "$0")/env.sh"

scripts/stop.sh --all
rm -rf "$home" "$MODBOX_RUN_DIR" bin tmp dist console/node_modules
find internal/embedded/files internal/console/dist -type f ! -name .gitignore -delete
