# Runs as root inside the new root filesystem, with sh -eu.

ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm
ln -s ../lib/node_modules/npm/bin/npx-cli.js /usr/local/bin/npx
chmod 0755 /usr/local/lib/node_modules/npm/bin/*-cli.js
node --version
