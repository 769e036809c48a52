#!/bin/bash
# Shows the whole thing: starts the server, makes a sandbox through the API that
# the SDKs use, runs code in four languages through its URL, and destroys it.
# It is also an example of the API by curl.
set -euo pipefail
source "$(dirname "$0")/env.sh"

now() { date +%s%N; }
since() { echo "$((($(now) - $1) / 1000000)) ms"; }
say() { printf '\033[1m%s\033[0m\n' "$*"; }

say "Images"
bin/modbox images build base code-exec data

say "Server"
scripts/start.sh
url=$(server_url)
token=$(server_token)
echo "$url"

# ask WHAT CURL_OPTION...: prints the server's answer. If the server refuses, ask says WHAT failed, with the answer.
ask() {
	local out
	out=$(curl -sS --fail-with-body "${@:2}") || {
		echo "$1 failed: $out" >&2
		return 1
	}
	printf '%s' "$out"
}

# api METHOD PATH [JSON] asks the control plane.
api() {
	ask "$1 $2" -X "$1" "$url$2" -H "Authorization: Bearer $token" ${3:+-H "Content-Type: application/json" -d "$3"}
}

say "Sandbox"
task=quickstart-$$
key=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
start=$(now)
id=$(api POST /sandboxes/provision "$(jq -n --arg task "$task" --arg key "$key" \
	'{task_id: $task, ttl_seconds: 600, env_vars: {SANDBOX_API_KEY: $key}}')" | jq -er .sandbox_id)
trap 'api POST /sandboxes/destroy "{\"task_id\":\"$task\"}" >/dev/null || true' EXIT
api POST /sandboxes/wait "{\"task_id\":\"$task\",\"timeout\":60}" | jq -e 'if .ready then . else error("the sandbox does not run: \(.)") end' >/dev/null
echo "ready after $(since "$start")"
sandbox=$(api GET "/sandboxes/detail/$id" | jq -er .sandbox_url)
echo "$sandbox"

# run LANGUAGE CODE runs code through the sandbox's own URL.
run() {
	local start out
	start=$(now)
	out=$(jq -n --arg language "$1" --arg code "$2" '{language: $language, code: $code}' |
		ask "$1" "$sandbox/execute" -H "Authorization: Bearer $key" -H "Content-Type: application/json" -d @-)
	if [ "$(jq .exitCode <<<"$out")" != 0 ]; then
		echo "$1 failed: $out" >&2
		exit 1
	fi
	printf '%-10s %s   (%s)\n' "$1" "$(jq -j .stdout <<<"$out")" "$(since "$start")"
}
say "Code"
run python 'import sys; print("Python", sys.version.split()[0], "says", sum(range(10)))'
run javascript 'console.log("Node", process.version, "says", [...Array(10).keys()].reduce((a, b) => a + b))'
# shellcheck disable=SC2016
run bash 'echo "Bash $BASH_VERSION says $((0+1+2+3+4+5+6+7+8+9))"'
run go 'package main

import ("fmt"; "runtime")

func main() { n := 0; for i := range 10 { n += i }; fmt.Println("Go", runtime.Version(), "says", n) }'

start=$(now)
trap - EXIT
api POST /sandboxes/destroy "{\"task_id\":\"$task\"}" | jq -e .success >/dev/null
echo "destroyed in $(since "$start")"

console=$(grep -o ' console=http[^ ]*' .modbox/server.log | tail -1 | cut -d= -f2) || console=
say "Next"
cat <<END
The server runs at $url (log: .modbox/server.log).${console:+
Its console is at $console; sign in with the token below.} To talk to it:

  export MODBOX_URL=$url MODBOX_API_TOKEN=$token MODBOX_STATE_DIR=\$PWD/.modbox/state PATH=\$PWD/bin:\$PATH
  modbox run -it modbox/code-exec -- bash
  modbox run modbox/code-exec -- python3 -c 'print(6*7)'
  modbox ls
  modbox --help

"make stop" ends it, "make clean" undoes everything but installed packages and caches.
END
