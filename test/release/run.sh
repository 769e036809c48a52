#!/bin/bash
# Makes a release of a test version and tries each of its files: on this machine, in chroots and
# in empty projects. It needs root, and the images of the state directory. Programs and packages
# for arm64, which take minutes to compile, are in it with MODBOX_TEST_RELEASE_ARM64=1 only;
# otherwise the agent alone is compiled for arm64.
# shellcheck disable=SC2317 # its functions are called by name
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
source scripts/env.sh
source scripts/node.sh
source scripts/images.sh
source scripts/checks.sh
use_node
version=9.8.7
architectures=amd64
if [ -n "${MODBOX_TEST_RELEASE_ARM64:-}" ]; then architectures="amd64 arm64"; fi
work=$(mktemp -d) || exit
run=$(mktemp -d /dev/shm/mbxXXXXXX) || exit # short: sockets are made below it
chmod 755 "$work"
trap 'rm -rf "$work" "$run"' EXIT
source=$work/source dist=$work/source/dist

# The release is of a copy with what this working copy has, committed or not.
copy() {
	git clone --quiet . "$source" && git ls-files -z -co --exclude-standard | (
		while IFS= read -rd '' file; do
			if [ -e "$file" ]; then printf '%s\0' "$file"; else rm -f "$source/$file"; fi
		done
	) | tar -c --null -T - | tar -x -C "$source" || return
	cd "$source" || return
	git add -A
	git diff --cached --quiet || git -c user.name=test -c user.email=test@localhost commit --quiet -m test
}

# fails_with TEXT COMMAND...: the command fails, and says so.
fails_with() {
	local out
	if out=$("${@:2}" 2>&1); then
		echo "It succeeded: $out"
		return 1
	fi
	grep -F "$1" <<<"$out" || { echo "$out"; return 1; }
}
untagged() { fails_with "HEAD has no tag of the form vX.Y.Z" make -C "$source" release; }
dirty() {
	touch "$source/new" && fails_with "changes that are not committed" make -C "$source" release && rm "$source/new"
}
misnamed() { fails_with "VERSION=1.2 is not of the form vX.Y.Z" env VERSION=1.2 make -C "$source" release; }

release() {
	git -C "$source" tag "v$version" && ARCHITECTURES=$architectures make -C "$source" release || return
	local expected
	expected=$(
		cat <<-END
			SHA256SUMS
			modbox-$version-py3-none-any.whl
			modbox-$version.tar.gz
			modbox-sdk-$version.tgz
			modbox_${version}_chart.tgz
			modbox_${version}_modules.txt
			modbox_${version}_oci.tar
		END
		for architecture in $architectures; do printf '%s\n' "modbox_${version}_$architecture.deb" "modbox_${version}_linux_$architecture"; done
	)
	diff <(sort <<<"$expected") <(cd "$dist" && find . -type f -printf '%P\n' | sort) &&
		(cd "$dist" && sha256sum --check --strict SHA256SUMS && [ "$(wc -l <SHA256SUMS)" = "$(($(wc -l <<<"$expected") - 1))" ])
}

# A second release of the same tag, in another directory, at another time.
reproducible() {
	git clone --quiet "$source" "$work/again" || return
	ONLY=server ARCHITECTURES=amd64 make -C "$work/again" release || return
	for file in "modbox_${version}_linux_amd64" "modbox_${version}_amd64.deb" "modbox_${version}_chart.tgz"; do cmp "$dist/$file" "$work/again/dist/$file" || return; done
	if [ "$architectures" = amd64 ]; then cmp "$dist/modbox_${version}_oci.tar" "$work/again/dist/modbox_${version}_oci.tar"; fi
}

# static MACHINE PROGRAM: the program is for the machine, and needs no libraries.
static() {
	local elf
	elf=$(readelf -hl "$2") || return
	grep "Machine:.*$1" <<<"$elf" || { echo "$elf"; return 1; }
	if grep -E INTERP\|DYNAMIC <<<"$elf"; then return 1; fi
}
# versioned COMMAND...: "modbox version" prints tag and commit.
versioned() {
	local out
	out=$(HOME=$work/home MODBOX_URL=http://127.0.0.1:9 "$@" version) || return
	[[ $out == "modbox v$version (commit $(git -C "$source" rev-parse HEAD), go"* ]] || { echo "$out"; return 1; }
}
program() {
	local program=$dist/modbox_${version}_linux_amd64
	static X86-64 "$program" && versioned "$program" || return
	# The doctor starts a sandbox with the agent and the sandbox process that are in the program.
	lend_images "$MODBOX_STATE_DIR/images" "$work/state/images" && chmod 700 "$work/state" &&
		MODBOX_LISTEN=127.0.0.1:0 MODBOX_STATE_DIR=$work/state MODBOX_RUN_DIR=$run "$program" doctor
}
arm64() {
	local program
	if [ "$architectures" = amd64 ]; then
		CGO_ENABLED=0 GOARCH=arm64 go build -trimpath -ldflags '-s -w' -o "$work/agent" ./cmd/modbox-agent && static AArch64 "$work/agent"
		return
	fi
	program=$dist/modbox_${version}_linux_arm64
	static AArch64 "$program" || return
	dpkg-deb --fsys-tarfile "$dist/modbox_${version}_arm64.deb" | tar -xO ./usr/bin/modbox | cmp - "$program" || return
	if command -v qemu-aarch64-static; then versioned qemu-aarch64-static "$program"; fi
}
modules() { grep -E "gvisor.dev/gvisor[[:space:]]+$(go list -m -f '{{.Version}}' gvisor.dev/gvisor)" "$dist/modbox_${version}_modules.txt"; }

# The Debian package is installed into a root directory of its own, with a shell for its scripts.
debian() {
	local root=$work/debian deb=$dist/modbox_${version}_amd64.deb
	mkdir -p "$root"/{bin,etc,tmp,var/lib/dpkg/{updates,info,triggers},var/log} || return
	cp /bin/busybox "$root/bin/sh" && touch "$root/var/lib/dpkg/status" || return
	dpkg --root="$root" --install "$deb" && dpkg --root="$root" --verify modbox || return
	versioned "$root/usr/bin/modbox" || return
	cmp "$root/etc/modbox.yaml" packaging/modbox.example.yaml || return
	sed "s#/usr/bin/modbox#$root&#" "$root/usr/lib/systemd/system/modbox.service" >"$work/modbox.service"
	systemd-analyze verify --man=no --recursive-errors=no "$work/modbox.service" || return
	grep -x 'ExecStart=/usr/bin/modbox server --config /etc/modbox.yaml' "$root/usr/lib/systemd/system/modbox.service" || return
	bash -n "$root/usr/share/bash-completion/completions/modbox" && grep -q modbox "$root/usr/share/bash-completion/completions/modbox" || return
	for page in modbox modbox-create modbox-workspace-quota-set; do
		zcat "$root/usr/share/man/man1/$page.1.gz" | grep -q '^\.SH SYNOPSIS' || return
	done
	diff -r packaging/grafana "$root/usr/share/modbox/grafana" || return
	promtool check rules "$root/usr/share/modbox/prometheus/modbox.rules.yaml" || return
	# An upgrade keeps the administrator's settings, and a purge removes all but the state.
	echo 'listen: 127.0.0.1:1' >"$root/etc/modbox.yaml"
	mkdir -p "$root/var/lib/modbox" && touch "$root/var/lib/modbox/modbox.db"
	dpkg --root="$root" --install "$deb" && grep -x 'listen: 127.0.0.1:1' "$root/etc/modbox.yaml" || return
	dpkg --root="$root" --purge modbox || return
	diff <(echo var/lib/modbox/modbox.db) <(cd "$root" && find . -type f -path '*modbox*' -printf '%P\n')
}

# The chart has the version, and so the tag of the image.
chart() {
	tar -xzf "$dist/modbox_${version}_chart.tgz" -C "$work" || return
	[ "$(grep -c -E "^(version|appVersion): $version\$" "$work/modbox/Chart.yaml")" = 2 ] || { cat "$work/modbox/Chart.yaml"; return 1; }
	diff -r -x Chart.yaml -x seccomp "$work/modbox" deploy/helm/modbox && cmp "$work/modbox/seccomp/modbox-worker.json" deploy/seccomp/modbox-worker.json
}

# The image is imported by us, and its server runs in a chroot, where it starts a sandbox.
oci() {
	local tar=$dist/modbox_${version}_oci.tar state=$work/imported layout=$work/layout root=$work/root manifest
	mkdir -m 700 "$state" && MODBOX_STATE_DIR=$state MODBOX_RUN_DIR=$run bin/modbox images import "$tar" --name "example/server:$version" || return
	mkdir "$layout" "$root" && tar -x -C "$layout" -f "$tar" || return
	blob() { echo "$layout/blobs/sha256/${1#sha256:}"; }
	index=$(blob "$(jq -er '.manifests[0].digest' "$layout/index.json")") || return
	diff <(tr ' ' '\n' <<<"$architectures") <(jq -er '.manifests[].platform.architecture' "$index") || return
	manifest=$(blob "$(jq -er '.manifests[] | select(.platform.architecture == "amd64").digest' "$index")") || return
	jq -e '.config | .Entrypoint == ["/usr/bin/modbox"] and .Cmd == ["server"]' "$(blob "$(jq -er .config.digest "$manifest")")" || return
	tar -xz -C "$root" -f "$(blob "$(jq -er '.layers[0].digest' "$manifest")")" || return
	cmp "$root/usr/bin/modbox" "$dist/modbox_${version}_linux_amd64" || return
	[ "$(grep -c BEGIN "$root/etc/ssl/certs/ca-certificates.crt")" -gt 50 ] || return
	link_images "$MODBOX_STATE_DIR/images" "$root/var/lib/modbox/images" || return
	serve "$root"
}

# serve ROOT: runs the server of a root directory, and starts a sandbox by it.
serve() (
	unset MODBOX_URL MODBOX_API_TOKEN
	env -i PATH=/usr/sbin:/usr/bin:/bin HOME=/root MODBOX_LISTEN=127.0.0.1:0 unshare --mount test/release/container.sh "$1" /usr/bin/modbox server >"$work/server.log" 2>&1 &
	server=$!
	finish() {
		code=$?
		if [ -n "${MODBOX_API_TOKEN:-}" ]; then timeout 60 bin/modbox rm --all --yes || code=1; fi
		kill -TERM "$server" && wait "$server" || code=1
		if [ "$code" != 0 ]; then cat "$work/server.log"; fi
		exit "$code"
	}
	trap finish EXIT
	for _ in $(seq 600); do
		if [ -s "$1/var/lib/modbox/address" ]; then break; fi
		kill -0 "$server" || exit
		sleep 0.1
	done
	MODBOX_URL=http://$(cat "$1/var/lib/modbox/address") || exit
	MODBOX_API_TOKEN=$(cat "$1/var/lib/modbox/token") || exit
	export MODBOX_URL MODBOX_API_TOKEN
	out=$(timeout 120 bin/modbox run modbox/base -- echo from a sandbox) || exit
	[ "$out" = "from a sandbox" ]
)

npm_package() {
	local project=$work/project
	mkdir "$project" && cp test/release/project/* "$project/" || return
	(
		cd "$project" && npm install --no-audit --no-fund "$dist/modbox-sdk-$version.tgz" || exit
		[ "$(jq -r .version node_modules/modbox-sdk/package.json)" = "$version" ] || exit
		node import.mjs && node require.cjs
	) && "$source/sdk/typescript/node_modules/.bin/tsc" -p "$project"
}

# python FILE: a wheel or a source archive, installed without a network.
python() {
	local venv=$work/venv-${1##*.}
	/usr/bin/python3 -m venv --system-site-packages --without-pip "$venv" || return
	PIP_FIND_LINKS='' "$venv/bin/python" -m pip install --no-index --no-build-isolation --no-deps "$1" || return
	(cd / && "$venv/bin/python" - "$version" "$venv") <<-'END'
		import importlib.metadata, pathlib, sys
		import modbox
		assert modbox.__version__ == importlib.metadata.version("modbox") == sys.argv[1], modbox.__version__
		assert modbox.__file__.startswith(sys.argv[2]), modbox.__file__
		assert pathlib.Path(modbox.__file__).with_name("py.typed").exists()
		assert modbox.ModboxClient(base_url="http://127.0.0.1:9", token="t").sandboxes
	END
}
wheel() { python "$dist/modbox-$version-py3-none-any.whl"; }
sdist() { python "$dist/modbox-$version.tar.gz"; }

check copy copy
check untagged untagged
check dirty dirty
check misnamed misnamed
check release release
check reproducible reproducible
check program program
check arm64 arm64
check modules modules
check debian debian
check oci oci
check chart chart
check npm npm_package
check wheel wheel
check sdist sdist
summary
