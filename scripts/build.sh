#!/bin/bash
# Builds bin/modbox with the agent and the sandbox process inside. Go's build
# cache makes a second run quick; packing is done only for what changed.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(git describe --tags --always --dirty 2>/dev/null || echo unknown)
gvisor=$(go list -m -f '{{.Version}}' gvisor.dev/gvisor)
export CGO_ENABLED=0
files=internal/embedded/files
mkdir -p bin

build() { # NAME LDFLAGS
	echo "build $1" >&2
	go build -trimpath -buildvcs=false -ldflags "-s -w $2" -o "bin/$1" "./cmd/$1"
}

pack() { # NAME: files/NAME.gz and the hash of what is in it
	local sum
	sum=$(sha256sum <"bin/$1" | cut -d' ' -f1)
	if [ -f "$files/$1.gz" ] && [ "$(cat "$files/$1.sha256" 2>/dev/null)" = "$sum" ]; then
		return
	fi
	rm -f "$files/$1.sha256"
	gzip -9 -n -c "bin/$1" >"$files/$1.gz.tmp"
	mv "$files/$1.gz.tmp" "$files/$1.gz"
	echo "$sum" >"$files/$1.sha256"
}

# The agent and sandbox carry versions that change only with their code, so that
# a commit elsewhere does not make every sandbox image and checkpoint a new one.
build modbox-agent ""
build modbox-sandbox "-X gvisor.dev/gvisor/runsc/version.version=$gvisor"
pack modbox-agent
pack modbox-sandbox
build modbox "-X main.version=$version"
