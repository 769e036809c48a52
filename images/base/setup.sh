# Runs as root inside the new root filesystem, with sh -eu.

install -d -m 0755 /workspace /workspace/uploads
