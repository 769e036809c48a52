#!/bin/bash
# Builds bin/modbox with the agent, the sandbox process and the program of modbox/sandbox inside. Go's build
# cache makes a second run quick; packing is done only for what changed.
#
#   scripts/build.sh        for this machine, into bin/
#   scripts/build.sh DIR    into DIR, for the architecture GOARCH, and changes nothing else
#
# VERSION and COMMIT are what "modbox version" prints, by default the names of HEAD.
set -euo pipefail
cd "$(dirname "$0")/.."

# Beside the programs that do not embed it. A release must have it.
scripts/console.sh ${REQUIRE_CONSOLE:+--require} &
console=$!
trap wait EXIT

version=${VERSION:-$(git describe --tags --always --dirty 2>/dev/null || echo unknown)}
commit=${COMMIT:-$(git rev-parse HEAD 2>/dev/null || echo unknown)}
gvisor=$(go list -m -f '{{.Version}}' gvisor.dev/gvisor)
export CGO_ENABLED=0
out=${1:-bin} embedded=$PWD/internal/embedded/files
front=$PWD/images/sandbox-lite/build/modbox-front.gz # in the recipe of the image
files=$embedded overlay=()
mkdir -p "$out"
if [ $# != 0 ]; then
	# The build reads the packed programs of DIR in place of those in the source.
	files=$(realpath "$out")/files
	overlay=(-overlay "$out/overlay.json")
	mkdir -p "$files"
	for name in modbox-agent modbox-sandbox; do
		for suffix in gz sha256; do printf '%s/%s.%s\t%s/%s.%s\n' "$embedded" $name $suffix "$files" $name $suffix; done
	done >"$out/overlay.tsv"
	printf '%s\t%s\n' "$front" "$files/modbox-front.gz" >>"$out/overlay.tsv"
	jq -Rn '{Replace: [inputs | split("\t") | {(.[0]): .[1]}] | add}' <"$out/overlay.tsv" >"$out/overlay.json"
	front=$files/modbox-front.gz
fi

# The linker leaves out what debuggers read (-s -w), so the compiler need not make it, which takes a tenth of its CPU time.
build() { # NAME LDFLAGS [OPTION...]
	echo "build $1${GOARCH:+ for $GOARCH}" >&2
	go build "${@:3}" -trimpath -gcflags=all=-dwarf=false -buildvcs=false -ldflags "-s -w $2" -o "$out/$1" "./cmd/$1"
}

# Programs that were packed for any clone are kept in the user's cache directory, each until it has not been
# used for a week. Another gzip may pack otherwise.
packed=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/modbox/packed/$(gzip --version | sha256sum | cut -c1-8)

pack() { # NAME: files/NAME.gz and the hash of what is in it
	local sum kept
	sum=$(sha256sum <"$out/$1" | cut -d' ' -f1)
	if [ -f "$files/$1.gz" ] && [ "$(cat "$files/$1.sha256" 2>/dev/null)" = "$sum" ]; then
		return
	fi
	rm -f "$files/$1.sha256"
	kept=$packed/$sum.gz
	if cp "$kept" "$files/$1.gz.tmp" 2>/dev/null && [ "$(gzip -dc "$files/$1.gz.tmp" 2>/dev/null | sha256sum)" = "$sum  -" ]; then
		touch "$kept"
	else
		gzip -9 -n -c "$out/$1" >"$files/$1.gz.tmp"
		# The build needs no cache.
		{ mkdir -p "$packed" && find "$packed" -type f -mtime +7 -delete && cp "$files/$1.gz.tmp" "$kept.$$" && mv "$kept.$$" "$kept"; } 2>/dev/null || true
	fi
	mv "$files/$1.gz.tmp" "$files/$1.gz"
	echo "$sum" >"$files/$1.sha256"
}

# The agent, sandbox and front carry versions that change only with their code, so that
# a commit elsewhere does not make every sandbox image and checkpoint a new one.
# In the sandbox, gVisor copies 2 MiB around the first byte that a program changes in its data, with what is read-only
# beside it. So data begins at a multiple of 2 MiB.
build modbox-agent "-R 0x200000"
build modbox-front "-R 0x200000"
build modbox-sandbox "-X gvisor.dev/gvisor/runsc/version.version=$gvisor"
pack modbox-agent
pack modbox-sandbox
gzip -9 -n -c "$out/modbox-front" >"$front.tmp"
# Only a change gets a new date, after which Go would read it again.
if cmp -s "$front.tmp" "$front"; then rm "$front.tmp"; else mv "$front.tmp" "$front"; fi
wait "$console"
build modbox "-X main.version=$version -X main.commit=$commit" "${overlay[@]}"
