# Sourced by the other scripts: Node.js and npm for the tests. Debian 12 has Node.js 18
# and npm 9, which lack options and lockfile rules that the tests need.
# shellcheck shell=bash
node_least=20
node_dir=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/modbox/node

# node_is_old: whether the node in PATH is missing or older than node_least.
node_is_old() {
	local major
	major=$(node --print 'process.versions.node.split(".")[0]' 2>/dev/null) || return 0
	[ "$major" -lt "$node_least" ]
}

# install_node installs Node.js from the npm registry into the user's cache directory
# when the one of the system is old.
install_node() {
	if node_is_old && ! { [ -x "$node_dir/node_modules/.bin/node" ] && [ -x "$node_dir/node_modules/.bin/npm" ]; }; then
		echo "Installing Node.js $node_least and npm 10 in $node_dir"
		npm install --silent --no-audit --no-fund --prefix "$node_dir" "node@$node_least" npm@10
	fi
}

# use_node puts the Node.js of install_node first in PATH when the one of the system is old.
use_node() {
	if node_is_old; then export PATH=$node_dir/node_modules/.bin:$PATH; fi
}
