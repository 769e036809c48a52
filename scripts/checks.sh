# Sourced by scripts whose checks are counted: they print a line for each check, and last
# "N passed, N failed".
# shellcheck shell=bash
passed=0 failed=0

# check NAME COMMAND...: runs a check, whose output is shown only when it fails.
check() {
	local out
	if out=$("${@:2}" 2>&1); then
		printf '%-12s ok\n' "$1"
		passed=$((passed + 1))
	else
		printf '%-12s FAILED\n%s\n' "$1" "$out"
		failed=$((failed + 1))
	fi
}

# summary prints how many checks passed and failed; it fails when one did.
summary() {
	echo "$passed passed, $failed failed"
	[ "$failed" = 0 ]
}
