# Runs as root inside the new root filesystem, with sh -eu.

ln -s bun /usr/local/bin/bunx
# Programs that begin with "#!/usr/bin/env node" run; Bun behaves as Node when it is called so.
ln -s bun /usr/local/bin/node
bun --version
