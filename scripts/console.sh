#!/bin/bash
# Builds the pages of the web console into internal/console/dist, where the next build of modbox
# embeds them. Does nothing when they are current. Without Node.js, npm or the packages it says so and succeeds:
# the program then serves a page that says how to build them.
#
#   scripts/console.sh             builds the pages
#   scripts/console.sh --require   fails in such cases, e.g. for a release
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/node.sh
use_node

if node_is_old || ! command -v npm >/dev/null; then
	echo "The console is not built: it needs Node.js $node_least and npm (scripts/install-deps.sh --test installs them)." >&2
	[ "${1:-}" != --require ]
	exit
fi

dist=internal/console/dist mark=console/node_modules/.built
# What the pages are made of: their source, the types of the API, and Node.js itself.
sum=$({
	node --version
	find console -path console/node_modules -prune -o -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
	sha256sum sdk/typescript/src/openapi.ts
} | sha256sum | cut -d' ' -f1)
if [ -f "$dist/index.html" ] && [ "$(cat "$mark" 2>/dev/null)" = "$sum" ]; then exit 0; fi
echo "build the console" >&2
if ! scripts/npm-ci.sh console >&2; then
	echo "The console is not built: its packages could not be installed." >&2
	[ "${1:-}" != --require ]
	exit
fi
npm run --silent build --prefix console >&2
echo "$sum" >"$mark"
