#!/bin/bash
# Makes the files of a release in dist/, from the tag vX.Y.Z of HEAD; docs/release.md lists them.
# The same commit gives the same programs, Debian packages and OCI image: all times in them are
# the time of the commit.
#
#   VERSION=vX.Y.Z           names the version itself, for tests: HEAD needs no tag, and the
#                            source may have changes
#   DIST=dist                where the files are put; its old content is removed
#   ARCHITECTURES="amd64 arm64"
#   ONLY="server sdks"       leaves out the rest, for tests
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/node.sh
use_node

commit=$(git rev-parse HEAD)
if [ -z "${VERSION:-}" ]; then
	if [ -n "$(git status --porcelain)" ]; then
		echo "The source has changes that are not committed: commit or remove them (git status shows them)." >&2
		exit 1
	fi
	VERSION=$(git tag --points-at HEAD | grep -E '^v[0-9]+\.[0-9]+\.[0-9]+$' | sort -V | tail -n 1) || {
		echo "HEAD has no tag of the form vX.Y.Z: set one (git tag vX.Y.Z), or for a test give VERSION=vX.Y.Z." >&2
		exit 1
	}
fi
if ! [[ $VERSION =~ ^v[0-9]+\.[0-9]+\.[0-9]+$ ]]; then
	echo "VERSION=$VERSION is not of the form vX.Y.Z." >&2
	exit 1
fi
number=${VERSION#v}
read -ra architectures <<<"${ARCHITECTURES:-amd64 arm64}"
only=${ONLY:-server sdks}
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export REQUIRE_CONSOLE=yes # of scripts/build.sh
export VERSION COMMIT=$commit SOURCE_DATE_EPOCH TZ=UTC LC_ALL=C GOAMD64=v1 GOARM64=v8.0
umask 022

dist=${DIST:-dist}
rm -rf "$dist"
mkdir -p "$dist"
dist=$(realpath "$dist")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# server: the programs, the Debian packages, the OCI image, the Helm chart and the list of modules.
server() {
	local architecture programs=()
	for architecture in "${architectures[@]}"; do
		GOARCH=$architecture scripts/build.sh "$work/$architecture"
		cp "$work/$architecture/modbox" "$dist/modbox_${number}_linux_$architecture"
		programs+=("$architecture=$work/$architecture/modbox")
		# Which modules, at which versions and with which hashes, are linked into each program.
		(cd "$work" && go version -m "$architecture"/modbox{,-agent,-front,-sandbox}) >>"$dist/modbox_${number}_modules.txt"
	done
	# Completion and documentation are the same for all architectures; a program of this machine writes them.
	local here
	here=$(GOARCH='' go env GOARCH)
	if [ -e "$work/$here/modbox" ]; then
		ln "$work/$here/modbox" "$work/modbox"
	else
		GOARCH='' go build -o "$work/modbox" ./cmd/modbox
	fi
	mkdir "$work/man"
	GOARCH='' go run ./packaging/man -o "$work/man"
	cp packaging/modbox.1 "$work/man/"
	for architecture in "${architectures[@]}"; do debian "$architecture"; done
	GOARCH='' go run ./packaging/oci -version "$VERSION" -commit "$commit" -created "$SOURCE_DATE_EPOCH" \
		-o "$dist/modbox_${number}_oci.tar" "${programs[@]}"
	chart
}

# chart: the Helm chart, as "helm package" would make it, with the seccomp profile of workers in it.
chart() {
	mkdir "$work/chart"
	cp -r deploy/helm/modbox deploy/seccomp "$work/chart/"
	mv "$work/chart/seccomp" "$work/chart/modbox/"
	sed -i -E "s/^(version|appVersion): .*/\1: $number/" "$work/chart/modbox/Chart.yaml"
	tar -C "$work/chart" -c --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX modbox |
		gzip -9n >"$dist/modbox_${number}_chart.tgz"
}

# debian ARCHITECTURE: the Debian package. Its program is in /usr/bin, where the unit of a
# manual installation has /usr/local/bin.
debian() {
	local root=$work/deb-$1 share=$work/deb-$1/usr/share
	install -D -m 755 "$work/$1/modbox" "$root/usr/bin/modbox"
	install -D -m 644 <(sed 's#/usr/local/bin/#/usr/bin/#' packaging/modbox.service) "$root/usr/lib/systemd/system/modbox.service"
	install -D -m 644 packaging/modbox.example.yaml "$root/etc/modbox.yaml"
	install -D -m 644 <("$work/modbox" completion bash) "$share/bash-completion/completions/modbox"
	install -D -m 644 <("$work/modbox" completion zsh) "$share/zsh/vendor-completions/_modbox"
	install -D -m 644 <("$work/modbox" completion fish) "$share/fish/vendor_completions.d/modbox.fish"
	local page
	for page in "$work"/man/*; do install -D -m 644 <(gzip -9nc "$page") "$share/man/man1/${page##*/}.gz"; done
	install -D -m 644 packaging/debian/copyright "$share/doc/modbox/copyright"
	install -m 644 README.md NOTICE llms.txt "$share/doc/modbox/"
	install -D -m 644 -t "$share/modbox/grafana" packaging/grafana/*.json
	install -D -m 644 -t "$share/modbox/prometheus" packaging/prometheus/modbox.rules.yaml
	find docs -type f -exec install -D -m 644 {} "$share/doc/modbox/{}" \;
	mkdir "$root/DEBIAN"
	cat >"$root/DEBIAN/control" <<-END
		Package: modbox
		Version: $number
		Architecture: $1
		Maintainer: The Modbox maintainers <maintainers@users.noreply.github.com>
		Installed-Size: $(du -sk --apparent-size "$root" | cut -f1)
		Section: admin
		Priority: optional
		Recommends: ca-certificates, debian-archive-keyring, mmdebstrap
		Suggests: npm, uidmap
		Homepage: https://github.com/modbox/modbox
		Description: isolated Linux sandboxes for AI agents
		 An API call makes a sandbox: an isolated Linux with its own URL, files,
		 processes and limits, ready in about a tenth of a second. Server and
		 command line are one program, with gVisor and SQLite linked in.
	END
	echo /etc/modbox.yaml >"$root/DEBIAN/conffiles"
	install -m 755 packaging/debian/{postinst,prerm,postrm} "$root/DEBIAN/"
	(cd "$root" && find . -type f -not -path './DEBIAN/*' -printf '%P\n' | sort | xargs -d '\n' md5sum) >"$root/DEBIAN/md5sums"
	# Every dpkg unpacks gzip. Level 9 takes 2.7 times the time of level 6 for a package that is 0.5 % smaller.
	dpkg-deb --root-owner-group -Zgzip -z6 --build "$root" "$dist/modbox_${number}_$1.deb" >&2
}

# sdks: the npm package, and the wheel and source archive of Python, whose versions in the
# source are 0.0.0.
sdks() {
	scripts/npm-ci.sh sdk/typescript >&2
	npm run --silent build --prefix sdk/typescript >&2
	mkdir "$work/npm"
	cp -r sdk/typescript/{package.json,README.md,dist} LICENSE "$work/npm/"
	(
		cd "$work/npm"
		npm pkg set "version=$number"
		npm pkg delete scripts devDependencies
		npm pack --silent --ignore-scripts --pack-destination "$dist" >&2
	)
	mkdir "$work/python"
	cp -r sdk/python/{pyproject.toml,README.md,src} LICENSE "$work/python/"
	find "$work/python" -name __pycache__ -prune -exec rm -r {} +
	sed -i "s/^__version__ = .*/__version__ = \"$number\"/" "$work/python/src/modbox/__init__.py"
	(
		cd "$work/python"
		DIST=$dist /usr/bin/python3 -c 'from os import environ; from setuptools import build_meta; build_meta.build_sdist(environ["DIST"]); build_meta.build_wheel(environ["DIST"])' >"$work/python.log" 2>&1 || {
			cat "$work/python.log" >&2
			exit 1
		}
	)
}

for part in $only; do "$part"; done
(cd "$dist" && sha256sum -- * >"$work/SHA256SUMS" && mv "$work/SHA256SUMS" .)
echo "$VERSION in $dist:" >&2
ls -l "$dist" >&2
