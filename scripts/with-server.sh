#!/bin/bash
# Runs a command with a server of its own, in new directories, reachable by
# MODBOX_URL and MODBOX_API_TOKEN; ends it and all its sandboxes afterwards.
set -euo pipefail
source "$(dirname "$0")/env.sh"
source scripts/images.sh
images=${MODBOX_IMAGES:-$MODBOX_STATE_DIR/images}
work=$(mktemp -d)
MODBOX_STATE_DIR=$work/state
MODBOX_RUN_DIR=$(mktemp -d /tmp/mbxXXXXXX) # short: sockets are made below it
mkdir "$MODBOX_STATE_DIR"
lend_images "$images" "$MODBOX_STATE_DIR/images" # a store of its own

# Where the hosts that packages come from are addresses of this host's own
# network, or have certificates of a CA of their own, sandboxes are given both.
mirrors=$({ npm config get registry; apt-cache policy 2>/dev/null | grep -o 'https\?://[^ ]*'; echo http://deb.debian.org http://security.debian.org; } |
	grep -o 'https\?://[^/ :]*' | sed 's#.*//##' | sort -u | while read -r name; do getent ahostsv4 "$name" || true; done | cut -d' ' -f1 | sort -u | paste -sd,)
export MODBOX_NETWORK_ALLOW_CIDRS=${MODBOX_NETWORK_ALLOW_CIDRS:-$mirrors}
export MODBOX_NETWORK_CA_FILE=${MODBOX_NETWORK_CA_FILE:-${NODE_EXTRA_CA_CERTS:-}}

# Names of images without a registry are asked of none, unless told otherwise.
export MODBOX_IMAGES_DEFAULT_REGISTRY=${MODBOX_IMAGES_DEFAULT_REGISTRY:-}
# Tests have registries of their own on this host.
export MODBOX_IMAGES_INSECURE_REGISTRIES=${MODBOX_IMAGES_INSECURE_REGISTRIES:-127.0.0.1,localhost}

# Archived sandboxes are in a directory of its own.
export MODBOX_ARCHIVE_URL=${MODBOX_ARCHIVE_URL:-file://$work/archive}

# A machine that is slow or busy fails no test.
export MODBOX_EXEC_DEFAULT_TIMEOUT=${MODBOX_EXEC_DEFAULT_TIMEOUT:-10m}
export MODBOX_SANDBOX_START_TIMEOUT=${MODBOX_SANDBOX_START_TIMEOUT:-5m}

server='' command='' interrupted=''
# shellcheck disable=SC2317 # called by the trap
finish() {
	code=$?
	trap - EXIT
	trap '' INT TERM HUP # a second one would leave sandboxes
	if [ -n "$server" ]; then
		setsid bin/modbox rm --all --yes >/dev/null || code=1
		kill -TERM "$server" && wait "$server" || code=1
	fi
	if [ "$code" != 0 ]; then
		echo "The server's log:" >&2
		cat "$work/log" >&2
	fi
	rm -rf "$work" "$MODBOX_RUN_DIR"
	exit "$code"
}
# interrupted CODE: ends the command before its sandboxes.
# shellcheck disable=SC2317 # called by the traps
interrupted() {
	interrupted=$1
	if [ -z "$command" ]; then exit "$1"; fi
	kill -TERM "$command" 2>/dev/null || true
}
trap finish EXIT
trap 'interrupted 129' HUP
trap 'interrupted 130' INT
trap 'interrupted 143' TERM
# In a session of its own: the signals of a terminal, or to the process group, do not end it before its sandboxes.
MODBOX_LISTEN=${MODBOX_TEST_LISTEN:-127.0.0.1:0} setsid bin/modbox server 2>"$work/log" &
server=$!
for _ in $(seq 1200); do # two minutes
	if [ -s "$MODBOX_STATE_DIR/address" ] && curl -fsS -o /dev/null "${MODBOX_PUBLIC_URL:-$(server_url)}/healthz" 2>/dev/null; then break; fi
	kill -0 "$server"
	sleep 0.1
done
MODBOX_URL=${MODBOX_PUBLIC_URL:-$(server_url)}
curl -fsS -o /dev/null "$MODBOX_URL/healthz" # says why the server does not answer
MODBOX_API_TOKEN=$(server_token)
export MODBOX_URL MODBOX_API_TOKEN
# In the background, because a trap waits for a command in the foreground. Its SIGINT would be ignored there.
env --default-signal=INT,QUIT "$@" <&0 &
command=$!
code=0
wait "$command" || code=$?
while [ -n "$interrupted" ] && kill -0 "$command" 2>/dev/null; do wait "$command" || true; done
exit "${interrupted:-$code}"
