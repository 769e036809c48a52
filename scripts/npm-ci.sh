#!/bin/bash
# Installs the npm packages of each directory by its lock file, unless they are installed. npm ci alone removes and
# installs them each time, also under a suite that uses them at that moment; suites run side by side.
#
#   scripts/npm-ci.sh DIR...
set -euo pipefail
for dir; do
	(
		cd "$dir"
		exec 9<.
		flock 9
		if cmp -s package-lock.json node_modules/.installed; then exit; fi
		if ! out=$(npm ci --no-audit --no-fund 2>&1); then
			echo "$out" >&2
			exit 1
		fi
		cp package-lock.json node_modules/.installed
	)
done
