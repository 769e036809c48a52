# Runs as root inside the new root filesystem, with sh -eu.

test -x /usr/local/bin/claude || { echo "there is no claude for this machine's architecture" >&2; exit 1; }
