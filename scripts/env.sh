# Sourced by the other scripts: where the server of this working copy lives.
# shellcheck shell=bash disable=SC2034 # what it sets is used by those that source it
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
home=$PWD/.modbox
export MODBOX_STATE_DIR=$home/state
# Short and on tmpfs, and different for every working copy.
runtime=/run
if [ "$(id -u)" != 0 ]; then runtime=${XDG_RUNTIME_DIR:-/tmp/modbox-$(id -u)}; fi
runtime+=/modbox-$(pwd -P | sha256sum | cut -c1-8)
export MODBOX_RUN_DIR=$runtime
pid_file=$home/pid
log_file=$home/server.log

# server_pid prints the process id of the server when it runs. The state
# directory's lock tells: a pid alone could be anybody's by now.
server_pid() {
	local pid
	pid=$(cat "$pid_file" 2>/dev/null) || return 1
	[ "$(readlink "/proc/$pid/exe" 2>/dev/null | sed 's/ (deleted)$//')" = "$PWD/bin/modbox" ] || return 1
	echo "$pid"
}

# server_url and server_token print how to reach the running server.
server_url() { echo "http://$(cat "$MODBOX_STATE_DIR/address")"; }
server_token() { cat "$MODBOX_STATE_DIR/token"; }
