#!/bin/bash
# Checks style, and that generated files are what their sources say. Ends with
# "N passed, N failed".
# shellcheck disable=SC2317 # its functions are called by name
set -uo pipefail
cd "$(dirname "$0")/.." || exit
# Compiled as by scripts/build.sh, so that both share Go's build cache.
GOFLAGS="$(go env GOFLAGS) -trimpath"
export GOFLAGS CGO_ENABLED=0
source scripts/checks.sh
unformatted() { local files; files=$(git ls-files -z '*.go' | xargs -0 gofmt -l); [ -z "$files" ] || { echo "$files"; false; }; }
statically() { go tool -modfile=tools/go.mod staticcheck ./...; }
openapi() { diff api/openapi.yaml <(go run ./cmd/modbox openapi); }
sdk() {
	scripts/npm-ci.sh sdk/typescript/tools && npm run --silent check:types --prefix sdk/typescript
}
# The documentation of settings and commands is compared by tests.
docs() { go test ./internal/config ./internal/cli; }
# The phrases that make readers stumble are counted by a test of the repository's structure.
words() { go test ./internal/archtest; }
unasync() { /usr/bin/python3 sdk/python/tools/unasync.py --check; }
schemas() { /usr/bin/python3 sdk/python/tools/schemas.py --check; }
types() { cd sdk/python && /usr/bin/mypy --python-version 3.9 --cache-dir ../../tmp/mypy; }
python() { git ls-files -z '*.py' | xargs -0 /usr/bin/pyflakes3; }
typescript() {
	scripts/npm-ci.sh sdk/typescript && npm run --silent lint --prefix sdk/typescript
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
check vet go vet ./...
check staticcheck statically
check openapi openapi
check sdk sdk
check typescript typescript
check console console
check unasync unasync
check schemas schemas
check mypy types
check pyflakes python
check docs docs
check words words
check shellcheck shells
check notice scripts/notice.sh --check
check deps scripts/deps.sh --check
summary
