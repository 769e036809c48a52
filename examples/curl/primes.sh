#!/bin/bash
# The API by curl: makes a sandbox, runs a program in it, and destroys it.
set -euo pipefail

api=${MODBOX_URL:-http://127.0.0.1:7070}/v1/sandboxes
call() { curl -sS --fail-with-body -H "Authorization: Bearer $MODBOX_API_TOKEN" "$@"; }
post() { call -H "Content-Type: application/json" -d @- "$@"; }

program='
limit = int(open("limit.txt").read())
primes = [n for n in range(2, limit) if all(n % d for d in range(2, n))]
print(primes)
open("count.txt", "w").write(str(len(primes)))
'

# ttl_seconds: it ends by itself, whatever happens to us.
sandbox=$(post "$api" <<'JSON'
{
  "image": "modbox/code-exec",
  "ttl_seconds": 300,
  "resources": { "memory": "512Mi", "cpu": "1", "disk": "1Gi" },
  "wait_seconds": 60
}
JSON
)
id=$(jq -er .id <<<"$sandbox")
trap 'call -X DELETE "$api/$id" >/dev/null' EXIT
echo "sandbox $(jq -r .state <<<"$sandbox")"

printf 30 | call -X PUT --data-binary @- "$api/$id/files?path=/tmp/work/limit.txt&parents=true" >/dev/null
jq -n --arg program "$program" '{command: ["python3", "-c", $program], cwd: "/tmp/work", timeout_seconds: 20}' |
	post "$api/$id/exec" | jq -j '"exit code \(.exit_code)\n", .stdout'

# A stream is a line of JSON for each piece of output, which is base64.
# shellcheck disable=SC2016 # $i is the sandbox's
echo '{"shell": "for i in 1 2 3; do echo line $i; done"}' | post -N "$api/$id/exec/stream" |
	jq --unbuffered -j 'select(.type == "stdout").data | @base64d'
echo "count $(call "$api/$id/files?path=/tmp/work/count.txt")"

trap - EXIT
echo "sandbox $(call -X DELETE "$api/$id" | jq -r .state)"
