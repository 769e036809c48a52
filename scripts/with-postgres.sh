#!/bin/bash
# Runs a command with a PostgreSQL server for tests, whose URL is in MODBOX_TEST_POSTGRES. The server is of Debian's package
# postgresql, listens on a socket in a directory of its own, and ends with the command. It does not wait for the
# disk: tests of durability start their own.
set -euo pipefail
initdb=$(printf '%s\n' /usr/lib/postgresql/*/bin/initdb | sort -V | tail -n 1) # a newer version may have programs of the client alone
bin=${initdb%/*}
if [ ! -x "$initdb" ]; then
	echo "PostgreSQL is not installed; scripts/install-deps.sh --test installs it" >&2
	exit 1
fi
dir=$(mktemp -d "${TMPDIR:-/tmp}"/mbpg-XXXXXX)
as=()
if [ "$(id -u)" = 0 ]; then # PostgreSQL refuses to run as root
	chown postgres: "$dir"
	as=(setpriv --reuid postgres --regid postgres --init-groups)
fi
cleanup() {
	(cd "$dir" && "${as[@]}" "$bin/pg_ctl" -D "$dir/data" -w -m immediate stop >/dev/null 2>&1) || true # it may not have started
	rm -rf "$dir"
}
trap cleanup EXIT
(
	cd "$dir"
	"${as[@]}" "$initdb" -D data -U modbox -A trust -E UTF8 --locale=C.UTF-8 >initdb.log
	"${as[@]}" "$bin/pg_ctl" -D data -w -l server.log -o "-k $dir -c listen_addresses='' -c fsync=off -c max_connections=300" start >start.log
)
MODBOX_TEST_POSTGRES="postgres://modbox@/postgres?host=$dir" "$@"
