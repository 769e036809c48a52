#!/bin/bash
# Measures a server with a state of its own, beside Docker on the same root
# filesystem when a daemon answers; bench/main.go says how. Arguments go to it.
set -euo pipefail
source "$(dirname "$0")/env.sh"
image=modbox/code-exec
bin/modbox images build "$image" modbox/data

peer=()
if docker info --format '{{.ServerVersion}}' >/dev/null 2>&1; then
	layout=$MODBOX_STATE_DIR/images/layout
	blob() { echo "$layout/blobs/sha256/${1#sha256:}"; }
	manifest=$(jq -er --arg ref "$image:latest" \
		'.manifests[] | select(.annotations["org.opencontainers.image.ref.name"] == $ref).digest' "$layout/index.json")
	tar=$(mktemp --suffix .tar)
	trap 'rm -f "$tar"' EXIT
	zstd -dcqf "$(blob "$(jq -er '.layers[0].digest' "$(blob "$manifest")")")" >"$tar"
	peer=(-rootfs "$tar")
fi
CGO_ENABLED=0 go build -trimpath -o tmp/bench ./bench # static: it also runs inside a sandbox
scripts/with-server.sh tmp/bench -image "$image" "${peer[@]}" "$@"
