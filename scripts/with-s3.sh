#!/bin/bash
# Runs a command for tests that start S3 servers: MODBOX_TEST_S3 is the program of the server, test/s3server, which is
# built at its first use and kept in ~/.cache/modbox/s3server until no run has used it for a week.
set -euo pipefail
source=$(cd "$(dirname "$0")/../test/s3server" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/modbox/s3server
program=$cache/$({ go version && cat "$source"/{go.mod,go.sum,main.go}; } | sha256sum | cut -c1-16)
mkdir -p "$cache"
if [ -x "$program" ]; then
	touch "$program"
else
	built=$(mktemp "$cache/part-XXXXXX")
	# The flags of the caller may be for the product's packages. Compiled as by scripts/build.sh.
	GOFLAGS='-trimpath -gcflags=all=-dwarf=false -buildvcs=false' CGO_ENABLED=0 go -C "$source" build -o "$built" .
	chmod 755 "$built"
	mv "$built" "$program"
fi
find "$cache" -type f -mtime +7 -delete
MODBOX_TEST_S3=$program "$@"
