#!/bin/bash
# Starts the server of this working copy in the background, or restarts it when
# the binary is newer than the process. Its sandboxes survive a restart.
set -euo pipefail
source "$(dirname "$0")/env.sh"

mkdir -p "$home"
if pid=$(server_pid); then
	if [ "$(readlink "/proc/$pid/exe")" = "$PWD/bin/modbox" ] && [ "$(stat -Lc %i "/proc/$pid/exe")" = "$(stat -c %i bin/modbox)" ] &&
		curl -fsS -o /dev/null "$(server_url)/healthz" 2>/dev/null; then
		exit 0
	fi
	echo "Restart the server: its binary has changed" >&2
	scripts/stop.sh
fi
rm -f "$MODBOX_STATE_DIR/address"
# Its own session, so that it survives the terminal. Port 0 would be safer, but a
# fixed port is what people and the CLI expect.
MODBOX_LISTEN=${MODBOX_LISTEN:-127.0.0.1:7070} setsid bin/modbox server </dev/null >>"$log_file" 2>&1 &
pid=$!
echo "$pid" >"$pid_file"
for _ in $(seq 300); do
	if [ -s "$MODBOX_STATE_DIR/address" ] && curl -fsS -o /dev/null "$(server_url)/healthz" 2>/dev/null; then
		exit 0
	fi
	if ! kill -0 "$pid" 2>/dev/null; then break; fi
	sleep 0.1
done
echo "The server did not start; the end of $log_file:" >&2
tail -n 20 "$log_file" >&2
exit 1
