#!/bin/bash
# Stops the server of this working copy; its sandboxes keep running for the next
# start. With --all its sandboxes are destroyed first.
set -euo pipefail
source "$(dirname "$0")/env.sh"

if [ "${1:-}" = --all ] && [ -x bin/modbox ] && [ -d "$MODBOX_STATE_DIR" ]; then
	# A server must run to destroy what one left.
	if [ -e "$MODBOX_STATE_DIR/modbox.db" ] && ! server_pid >/dev/null; then MODBOX_LISTEN=127.0.0.1:0 scripts/start.sh; fi
	if server_pid >/dev/null; then
		MODBOX_URL=$(server_url) MODBOX_API_TOKEN=$(server_token) bin/modbox rm --all --yes
	fi
fi
if pid=$(server_pid); then
	kill -TERM "$pid"
	for _ in $(seq 350); do
		if ! kill -0 "$pid" 2>/dev/null; then break; fi
		sleep 0.1
	done
	if kill -0 "$pid" 2>/dev/null; then
		echo "The server (process $pid) does not end; killing it" >&2
		kill -KILL "$pid"
	fi
fi
rm -f "$pid_file"
