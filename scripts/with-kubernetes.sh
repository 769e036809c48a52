#!/bin/bash
# Runs a command with a Kubernetes cluster of two nodes, in PID, mount and network namespaces of its own: the cluster ends
# with the command, or when this script is killed. The command has kubectl, KUBECONFIG with all rights, and
#
#   MODBOX_TEST_KUBE_ADDRESS   the address of the namespaces for Pods
#   MODBOX_TEST_KUBE_NODES     process ids of the nodes; a node whose process is killed is lost
#
# It has no other network: what it needs must have been downloaded before. Pods have the images modbox:test, of bin/modbox (scripts/build.sh), and pause:test.
# docs/design/0056-test-cluster.md says more.
#
#   MODBOX_KUBE_LOGS=DIR       where the logs of the cluster are kept when the command fails
#
# The program of the cluster, test/cluster/kube, is built at its first use and kept in ~/.cache/modbox/kube until no run has
# used it for a week. It takes 8 minutes of CPU time.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
source=$root/test/cluster/kube
cache=${XDG_CACHE_HOME:-$HOME/.cache}/modbox/kube

if [ "$(id -u)" != 0 ]; then
	echo "with-kubernetes.sh makes namespaces and control groups: run it as root" >&2
	exit 1
fi
missing=()
for program in containerd ctr runc ip nft /usr/lib/cni/bridge; do
	if ! command -v "$program" >/dev/null; then missing+=("$program"); fi
done
if [ ${#missing[@]} != 0 ]; then
	echo "not installed: ${missing[*]}; scripts/install-deps.sh --cluster installs them" >&2
	exit 1
fi
if ! [ -x "$root/bin/modbox" ]; then
	echo "bin/modbox is missing; scripts/build.sh builds it" >&2
	exit 1
fi

# The flags of the caller may be for the product's packages. Compiled as by scripts/build.sh.
version=$(awk '$1 == "k8s.io/kubernetes" && $2 ~ /^v/ { print $2 }' "$source/go.mod")
minor=${version#v1.}
flags="-s -w -X k8s.io/component-base/version.gitVersion=$version -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=${minor%%.*}"
built() { # FILE PACKAGE
	GOFLAGS='-trimpath -gcflags=all=-dwarf=false -buildvcs=false' CGO_ENABLED=0 nice go -C "$source" build -p 2 -ldflags "$flags" -o "$1" "$2"
}
image() { # DIR: writes DIR/pause.tar, the image of the container that holds the namespaces of a Pod
	local dir=$1/image
	mkdir "$dir"
	built "$dir/pause" ./pause
	tar --owner=0 --group=0 -cf "$dir/layer.tar" -C "$dir" pause
	jq -n --arg layer "sha256:$(sha256sum <"$dir/layer.tar" | cut -d' ' -f1)" --arg architecture "$(go env GOARCH)" \
		'{os: "linux", $architecture, config: {Entrypoint: ["/pause"]}, rootfs: {type: "layers", diff_ids: [$layer]}}' >"$dir/config.json"
	jq -n '[{Config: "config.json", RepoTags: [], Layers: ["layer.tar"]}]' >"$dir/manifest.json"
	tar -cf "$1/pause.tar" -C "$dir" manifest.json config.json layer.tar
	rm -r "$dir"
}
name=$({ go version && cat "$0" "$source"/{go.mod,go.sum,*.go,pause/*.go}; } | sha256sum | cut -c1-16)
mkdir -p "$cache"
(
	flock 9 # another run would build the same
	if ! [ -e "$cache/$name" ]; then
		echo "building Kubernetes, once for each version of $source" >&2
		part=$(mktemp -d "$cache/part-XXXXXX")
		trap 'rm -rf "$part"' EXIT
		built "$part/kube" .
		image "$part"
		mv "$part" "$cache/$name"
	fi
	touch "$cache/$name"
	find "$cache" -mindepth 1 -maxdepth 1 -type d -mtime +7 -exec rm -r {} +
) 9>"$cache/lock"

dir=$(mktemp -d "${TMPDIR:-/tmp}"/mbkube-XXXXXX)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/images"
cp "$cache/$name/pause.tar" "$dir/images/"
(cd "$root" && GOFLAGS=-trimpath CGO_ENABLED=0 go run ./packaging/oci -version test -o "$dir/images/modbox.tar" "$(go env GOARCH)=bin/modbox")
exec "$cache/$name/kube" with "$dir" "$@" # it removes the directory
