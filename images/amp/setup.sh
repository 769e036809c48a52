# Runs as root inside the new root filesystem, with sh -eu.

test -x /usr/local/bin/amp || { echo "there is no amp for this machine's architecture" >&2; exit 1; }
