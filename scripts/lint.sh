#!/bin/bash
# Checks style, and that generated files are what their sources say. Ends with
# "N passed, N failed".
#
#   scripts/lint.sh                    all checks
#   scripts/lint.sh --without-tests    without those that are Go tests: the suite go has them
# shellcheck disable=SC2317 # its functions are called by name
set -uo pipefail
cd "$(dirname "$0")/.." || exit
# Compiled as by scripts/build.sh, so that both share Go's build cache.
GOFLAGS="$(go env GOFLAGS) -trimpath -gcflags=all=-dwarf=false"
export GOFLAGS CGO_ENABLED=0
source scripts/checks.sh
without_tests=
if [ "${1:-}" = --without-tests ]; then without_tests=1; fi

# unless_passed INPUT... -- COMMAND...: runs a command whose result depends on the files of the inputs and on installed
# programs only, unless it has succeeded with the same on this machine, in any clone.
unless_passed() {
	local inputs=(scripts/lint.sh) before passed=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/modbox/lint
	while [ "$1" != -- ]; do
		inputs+=("$1")
		shift
	done
	shift
	key() {
		{
			echo "$* $(node --version) $(/usr/bin/mypy --version)"
			dpkg-query --show
			git ls-files -z --cached --others --exclude-standard -- "${inputs[@]}" | sort -zu | xargs -0 sha256sum
		} | sha256sum | cut -c1-32
	}
	before=$(key "$@")
	if [ -e "$passed/$before" ]; then
		touch "$passed/$before" || true
		return
	fi
	"$@" || return
	# After a change of the files meanwhile, nobody knows which of them passed. No check needs the notes.
	if [ "$(key "$@")" = "$before" ]; then
		{ mkdir -p "$passed" && find "$passed" -type f -mtime +7 -delete && touch "$passed/$before"; } 2>/dev/null || true
	fi
}
unformatted() { local files; files=$(git ls-files -z '*.go' | xargs -0 gofmt -l); [ -z "$files" ] || { echo "$files"; false; }; }
# .golangci.yml has the linters, go vet among them. With the default of GOGC, garbage collection takes much of the CPU time; without a limit the
# garbage of a run on a fresh machine takes 6 GiB.
linters() { GOGC=400 GOMEMLIMIT=2500MiB go tool -modfile=tools/lint/go.mod golangci-lint run ./...; }
# With --without-tests, the program of the suites has just been built. Any other program may be an old one.
openapi() { diff api/openapi.yaml <(if [ -n "$without_tests" ] && [ -n "${MODBOX_BIN:-}" ]; then "$MODBOX_BIN" openapi; else go run ./cmd/modbox openapi; fi); }
sdk() {
	scripts/npm-ci.sh sdk/typescript/tools && npm run --silent check:types --prefix sdk/typescript
}
# The documentation of settings and commands is compared by tests.
docs() { go test ./internal/config ./internal/cli; }
# The phrases that make readers stumble are counted by a test of the repository's structure.
words() { go test ./internal/archtest; }
unasync() { /usr/bin/python3 sdk/python/tools/unasync.py --check; }
schemas() { /usr/bin/python3 sdk/python/tools/schemas.py --check; }
# Its cache, which compares hashes of files, serves all clones.
types() { cd sdk/python && /usr/bin/mypy --python-version 3.9 --cache-dir "${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/modbox/mypy"; }
python() { git ls-files -z '*.py' | xargs -0 /usr/bin/pyflakes3; }
typescript() {
	scripts/npm-ci.sh sdk/typescript sdk/typescript/tools && npm run --silent lint --prefix sdk/typescript
}
console() {
	scripts/npm-ci.sh console && npm run --silent lint --prefix console
}
# Scripts that begin with #!, and the pieces of scripts that images and tests consist of.
shells() {
	git ls-files -z --cached --others --exclude-standard | xargs -0 awk 'FNR == 1 { if (/^#!.*sh$/ || /^# Sourced by/) print FILENAME; nextfile }' | xargs shellcheck &&
		git ls-files -z 'images/*.sh' 'internal/*.sh' | xargs -0 shellcheck --shell=sh
}

check gofmt unformatted
check golangci linters
check openapi openapi
check sdk unless_passed sdk/typescript api/openapi.yaml -- sdk
check typescript unless_passed sdk/typescript -- typescript
check console unless_passed console sdk/typescript/src -- console
check unasync unasync
check schemas schemas
check mypy unless_passed sdk/python -- types
check pyflakes python
if [ -z "$without_tests" ]; then
	check docs docs
	check words words
fi
check shellcheck shells
check notice scripts/notice.sh --check
check deps scripts/deps.sh --check
summary
