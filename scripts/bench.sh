#!/bin/bash
# Measures a server with a state of its own, beside Docker on the same root
# filesystem when a daemon answers; bench/main.go says how. Arguments go to it.
#
#   scripts/bench.sh -base DIR [-only ROWS] [OPTION...]
#
# compares with the server of another working copy, which is built, alternately.
#
#   scripts/bench.sh -control [-ended 90000] [-live 10000] [-calls 1000] [-clients 4] [-rest 15s]
#
# measures the control plane alone, without gVisor, on PostgreSQL and on SQLite.
set -euo pipefail
if [ "${1:-}" = -control ]; then
	cd "$(dirname "$0")/.."
	export CGO_ENABLED=0
	options=(-ended 90000 -live 10000 -calls 1000 -clients 4 -rest 15s "${@:2}")
	scripts/with-postgres.sh go test -count=1 -timeout 30m -v ./test/control -args "${options[@]}"
	exec go test -count=1 -timeout 30m -v ./test/control -args "${options[@]}"
fi
source "$(dirname "$0")/env.sh"
image=modbox/code-exec
bin/modbox images build "$image" modbox/data

if [ "${1:-}" = -base ]; then
	base=$(realpath "$2")
	shift 2
	CGO_ENABLED=0 go build -trimpath -gcflags=all=-dwarf=false -o tmp/bench ./bench
	source scripts/images.sh
	mkdir -p "$base/.modbox/state"
	chmod 700 "$base/.modbox/state"
	[ -e "$base/.modbox/state/images" ] || link_images "$MODBOX_STATE_DIR/images" "$base/.modbox/state/images"
	# shellcheck disable=SC2016 # the other shell expands it
	(cd "$base" && bash -c 'source scripts/env.sh && bin/modbox images build "$@"' - "$image" modbox/data)
	# shellcheck disable=SC2016 # the other shell expands it
	"$base/scripts/with-server.sh" env HERE="$PWD" bash -c \
		'MODBOX_BASE_URL=$MODBOX_URL MODBOX_BASE_API_TOKEN=$MODBOX_API_TOKEN exec "$HERE/scripts/with-server.sh" "$@"' \
		- tmp/bench -image "$image" -base "$base/bin/modbox" "$@"
	exit
fi

bin/modbox images build modbox/chromium
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
# Programs of E2B's client and of Modbox's SDK, if there are Node.js and npm.
source scripts/node.sh
use_node
clients=()
if command -v npm >/dev/null && scripts/npm-ci.sh sdk/typescript bench/clients && npm --silent run build --prefix sdk/typescript; then
	clients=(-clients bench/clients)
fi
CGO_ENABLED=0 go build -trimpath -gcflags=all=-dwarf=false -o tmp/bench ./bench # static: it also runs inside a sandbox
# The idle sandboxes at the end exceed the default quotas of a workspace on a small machine, as for `modbox bench`.
export MODBOX_QUOTA_SANDBOXES=0 MODBOX_QUOTA_MEMORY=0 MODBOX_QUOTA_CPU=0 MODBOX_QUOTA_DISK=0 MODBOX_QUOTA_CREATES_PER_MINUTE=0
export MODBOX_CAPACITY_MEMORY_OVERCOMMIT=0 MODBOX_CAPACITY_DISK_OVERCOMMIT=0
scripts/with-server.sh tmp/bench -image "$image" "${peer[@]}" "${clients[@]}" "$@"
