# Runs as root inside the new root filesystem, with sh -eu.

test -x /usr/local/bin/opencode || { echo "there is no opencode for this machine's architecture" >&2; exit 1; }
