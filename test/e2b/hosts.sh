#!/bin/bash
# Runs a command with a server of its own that has TLS and a base domain, as with-server.sh: its clients know E2B_DOMAIN
# alone. It runs in a mount and a network namespace of its own, with a DNS server for the domain and a private
# certificate authority. Needs root.
set -euo pipefail
domain=box.modbox.test server=modbox.test
if [ "${MODBOX_TEST_HOSTS:-}" = "" ]; then
	dir=$(mktemp -d)
	trap 'rm -rf "$dir"' EXIT
	cd "$(dirname "$0")/../.."
	go build -o "$dir/names" ./test/e2b/names
	MODBOX_TEST_HOSTS=$dir unshare --mount --net --propagation private "test/e2b/hosts.sh" "$@"
	exit
fi
dir=$MODBOX_TEST_HOSTS
exec 3> >(exec "$dir/names" "$dir" "$server" "*.$domain") # it ends with this script
for _ in $(seq 600); do # a minute
	if [ -s "$dir/resolv.conf" ]; then break; fi
	sleep 0.1
done
mount --bind "$dir/resolv.conf" "$(realpath /etc/resolv.conf)"
export NODE_EXTRA_CA_CERTS=$dir/ca.pem SSL_CERT_FILE=$dir/ca.pem CURL_CA_BUNDLE=$dir/ca.pem MODBOX_NETWORK_CA_FILE=$dir/ca.pem
export MODBOX_TEST_LISTEN=127.0.0.1:443 MODBOX_TLS_CERT=$dir/cert.pem MODBOX_TLS_KEY=$dir/key.pem
export MODBOX_PUBLIC_URL=https://$server MODBOX_DOMAIN=$domain E2B_DOMAIN=$domain
scripts/with-server.sh "$@" 3>&-
