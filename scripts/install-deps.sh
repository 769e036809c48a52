#!/bin/bash
# Installs the Debian or Ubuntu packages that Modbox needs and that are missing,
# by name, without asking. Does nothing when all are there.
#
#   scripts/install-deps.sh          what running Modbox and building images needs
#   scripts/install-deps.sh --test   also what the tests need
#   scripts/install-deps.sh --cluster   what scripts/with-kubernetes.sh needs
set -euo pipefail
cd "$(dirname "$0")/.."

missing=()
need() { # TEST PACKAGE: PACKAGE is missing when TEST, a program or file, is
	if ! command -v "$1" >/dev/null && ! [ -e "$1" ]; then missing+=("$2"); fi
}
need mmdebstrap mmdebstrap
need /usr/share/keyrings/debian-archive-keyring.gpg debian-archive-keyring
need npm npm
need mount mount # mmdebstrap mounts /proc for the set-up scripts
need curl curl
need jq jq
need gzip gzip
need zstd zstd
need /etc/ssl/certs/ca-certificates.crt ca-certificates
if [ "$(id -u)" != 0 ]; then need newuidmap uidmap; fi
if [ "${1:-}" = --test ]; then
	need gcc gcc # the race detector's
	need /usr/include/stdlib.h libc6-dev
	need busybox busybox-static
	need /usr/bin/python3 python3
	need /usr/lib/python3/dist-packages/setuptools python3-setuptools # it and the next two build and install the Python package
	need /usr/lib/python3/dist-packages/wheel python3-wheel
	need /usr/lib/python3/dist-packages/pip python3-pip
	need /usr/lib/python3/dist-packages/httpx python3-httpx
	need /usr/lib/python3/dist-packages/yaml python3-yaml
	need /usr/lib/python3/dist-packages/wsproto python3-wsproto
	need /usr/lib/python3/dist-packages/ipykernel python3-ipykernel # the tests of kernels outside sandboxes
	need /usr/lib/python3/dist-packages/matplotlib python3-matplotlib
	need /usr/lib/python3/dist-packages/pandas python3-pandas
	need jshell default-jdk-headless
	need /usr/sbin/mkfs.ext4 e2fsprogs # small file systems that are filled and lose their power
	need ssh openssh-client # it and the next use sandboxes over SSH
	need rsync rsync
	need openssl openssl # makes certificates for the tests of TLS
	need ip iproute2 # a machine without network
	need nsupdate bind9-dnsutils # sets DNS records for certificates
	need readelf binutils
	initdb=(/usr/lib/postgresql/*/bin/initdb) # the directory may be of a client alone
	need "${initdb[0]}" postgresql # the store on PostgreSQL
	need prometheus prometheus # scrapes a server, and checks the alert rules
	need chromium-headless-shell chromium-headless-shell # opens pages of development servers in sandboxes
	need systemd-analyze systemd # verifies the unit of the Debian package
	need shellcheck shellcheck
	need /usr/bin/mypy mypy
	need /usr/bin/pyflakes3 pyflakes3
	need dockerd docker.io # to compare with; only the suite docker starts it
	need /usr/sbin/runc runc # runs a worker without privileges
	need docker docker-cli # its client, where docker.io does not have it (Debian 13)
fi
if [ "${1:-}" = --cluster ]; then
	need containerd containerd
	need runc runc
	need /usr/lib/cni/bridge containernetworking-plugins
	need nft nftables # kube-proxy's
	need ip iproute2
fi
if ! command -v go >/dev/null; then
	echo "Go is not installed; get the version named in go.mod from https://go.dev/dl" >&2
	exit 1
fi
source scripts/node.sh
if [ ${#missing[@]} = 0 ]; then
	if [ "${1:-}" = --test ]; then install_node >&2; fi
	exit 0
fi

echo "Missing packages: ${missing[*]}" >&2
as=()
apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300)
if [ "$(id -u)" != 0 ]; then
	if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
		echo "Install them as root: apt-get install ${missing[*]}" >&2
		exit 1
	fi
	as=(sudo)
fi
echo "Installing them with apt-get" >&2
# apt-get waits much, for servers and the disk. Meanwhile Go compiles for scripts/build.sh, which will say what is wrong.
setsid nice -n 10 scripts/compile.sh 2>/dev/null &
compiling=$!
trap 'kill -- "-$compiling" 2>/dev/null || true' EXIT
apt=("${as[@]}" "${apt[@]}")
"${apt[@]}" update >&2
packages=()
for package in "${missing[@]}"; do
	if [ "$package" != docker-cli ] || [ -n "$(apt-cache show docker-cli 2>/dev/null)" ]; then packages+=("$package"); fi
done
install=("${apt[@]}" install -y --no-install-recommends)
if [[ " ${packages[*]} " == *" postgresql "* ]] && ! command -v pg_createcluster >/dev/null; then
	# Debian's package would make a database server and start it on port 5432. The tests start servers of their own.
	"${install[@]}" postgresql-common >&2
	settings=/etc/postgresql-common/createcluster.conf
	"${as[@]}" sed -i -E 's/^#?[[:space:]]*create_main_cluster[[:space:]]*=.*/create_main_cluster = false/' "$settings"
	if ! grep -qx 'create_main_cluster = false' "$settings"; then
		echo "$settings has no line create_main_cluster" >&2
		exit 1
	fi
	echo "create_main_cluster is false in $settings, so that no database server is made and started" >&2
fi
"${install[@]}" "${packages[@]}" >&2
wait "$compiling" || true # two compilers at the same time would do the same work
if [ "${1:-}" = --test ]; then install_node >&2; fi
