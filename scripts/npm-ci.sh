#!/bin/bash
# Installs the npm packages of each directory by its lock file, unless they are installed. npm ci alone removes and
# installs them each time, also under a suite that uses them at that moment; suites run side by side.
# What is installed once is kept in the user's cache directory, and linked into other clones, until no
# clone has asked for it for a week. Their files are the same: nothing may change one in place. Should
# that have happened, remove ~/.cache/modbox/npm and the directories node_modules.
#
#   scripts/npm-ci.sh DIR...
#
# NPM_INSTALL is the command of npm, by default "ci".
set -euo pipefail
root=$(realpath "$(dirname "$0")/..")
cache=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/modbox/npm
install=${NPM_INSTALL:-ci}

# linked FROM TO: makes the directory TO with the files of FROM, or with copies on another file system.
linked() {
	cp -al "$1" "$2" 2>/dev/null || { rm -rf "$2" && cp -a --reflink=auto "$1" "$2"; }
}

# kept: the directory of the cache for this directory's packages. Links in them are relative to this directory.
kept() {
	local name
	name=$({
		realpath --relative-to="$root" .
		echo "$install $(node --version) $(uname -m)"
		cat package.json package-lock.json
	} | sha256sum | cut -c1-32)
	echo "$cache/$name"
}

for dir; do
	(
		cd "$dir"
		exec 9<.
		flock 9
		if cmp -s package-lock.json node_modules/.installed; then exit; fi
		kept=$(kept)
		# A copy fails when another clone removes the original meanwhile: its name changes first.
		if ! { [ -d "$kept" ] && touch "$kept" && rm -rf node_modules && linked "$kept" node_modules; } 2>/dev/null; then
			rm -rf node_modules # npm install would change files that are linked
			# shellcheck disable=SC2086 # a command with its options
			if ! out=$(npm $install --no-audit --no-fund 2>&1); then
				echo "$out" >&2
				exit 1
			fi
			mkdir -p "$cache" node_modules
			# shellcheck disable=SC2016 # the inner shell's
			find "$cache" -mindepth 1 -maxdepth 1 -mtime +7 -exec sh -c 'mv -T "$1" "$1.$$" && rm -rf "$1.$$"' sh {} \;
			# Another clone may have been faster.
			if ! { linked node_modules "$kept.$$" && mv -T "$kept.$$" "$kept"; } 2>/dev/null; then rm -rf "$kept.$$"; fi
		fi
		cp package-lock.json node_modules/.installed
	)
done
