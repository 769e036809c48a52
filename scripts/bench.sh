#!/usr/bin/env bash
# Measures Modbox against Docker with runc on the same root filesystem and writes
# bench/results/latest.md. Starts a server of its own, and a Docker daemon of its
# own when one is installed and none runs; ends both.
#
#   scripts/bench.sh [flags of bench, e.g. -rounds 50]
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d /tmp/modbox-bench.XXXXXX)
pids=()
cleanup() {
	for pid in "${pids[@]}"; do
		kill "$pid" 2>/dev/null || true
		wait "$pid" 2>/dev/null || true
	done
	if mountpoint -q "$work/docker" 2>/dev/null; then umount "$work/docker"; fi
	rm -rf "$work"
}
trap cleanup EXIT

# wait_for FILE SECONDS: until the file has content.
wait_for() {
	for _ in $(seq "$(($2 * 10))"); do
		[ -s "$1" ] && return 0
		sleep 0.1
	done
	echo "bench: $1 did not appear in $2 s" >&2
	return 1
}

# The images are those of the quickstart; build them there once.
images=${MODBOX_TEST_IMAGE_DIR:-$PWD/.modbox/state/images}
mkdir -p "$work/state" "$images"
ln -s "$images" "$work/state/images"
export MODBOX_STATE_DIR=$work/state MODBOX_RUN_DIR=$work/run
bin/modbox images build code-exec

bin/modbox server --listen 127.0.0.1:0 >"$work/server.log" 2>&1 &
pids+=($!)
wait_for "$work/state/address" 30
MODBOX_URL=http://$(cat "$work/state/address")
MODBOX_API_TOKEN=$(cat "$work/state/token")
export MODBOX_URL MODBOX_API_TOKEN

rootfs=()
if command -v docker >/dev/null && { docker info >/dev/null 2>&1 || command -v dockerd >/dev/null; }; then
	if ! docker info >/dev/null 2>&1; then
		# overlay2 needs a filesystem that is not an overlay itself: the state's disk is one.
		mkdir -p "$work/docker"
		dockerd --iptables=false --bridge=none --data-root "$work/docker" --exec-root "$work/docker-exec" \
			-H "unix://$work/docker.sock" --pidfile "$work/docker.pid" >"$work/docker.log" 2>&1 &
		pids+=($!)
		export DOCKER_HOST=unix://$work/docker.sock
		for _ in $(seq 300); do docker info >/dev/null 2>&1 && break || sleep 0.1; done
	fi
	bin/modbox images export code-exec "$work/rootfs.tar"
	rootfs=(-rootfs "$work/rootfs.tar")
fi

mkdir -p bench/results
go run ./bench "${rootfs[@]}" "$@"
