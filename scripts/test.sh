#!/bin/bash
# Runs all test suites, a line of result for each, and ends with a summary and
# "N passed, N failed". Arguments choose suites by name; none means all, in four
# lanes side by side: suites that compute, two of suites on real sandboxes, which wait much, and
# suites of clients. A lane that has ended its suites takes others. Each suite's output is kept in tmp/test-logs/. A suite that
# ran no test has failed.
set -uo pipefail
source "$(dirname "$0")/env.sh"
source scripts/node.sh
use_node
source scripts/images.sh
logs=$PWD/tmp/test-logs
mkdir -p "$logs"

# What the suites on real sandboxes use: what was just built, not a second build.
export MODBOX_BIN=$PWD/bin/modbox MODBOX_SANDBOX_BIN=$PWD/bin/modbox-sandbox MODBOX_AGENT_BIN=$PWD/bin/modbox-agent
export MODBOX_TEST_IMAGE_DIR=$MODBOX_STATE_DIR/images

# Compiled as by scripts/build.sh, so that Go's build cache serves builds, tests and checks alike.
# The suite lint vets all packages, with their tests; go test would vet a part of it again, and all
# that they import, once with and once without the race detector.
# Compilers and linkers collect garbage less often, which takes a fifth of their CPU time; what they
# make is the same.
# shellcheck disable=SC2089 # go splits it
GOFLAGS="$(go env GOFLAGS) -trimpath -gcflags=all=-dwarf=false -vet=off '-toolexec=env GOGC=400'"
# shellcheck disable=SC2090
export GOFLAGS CGO_ENABLED=0

# The packages with concurrency worth the race detector (which needs cgo).
racy=(./client/... ./internal/{agent,agentapi,api,audit,auth,autocheckpoint,background,box,broadcast,checkpoint,dialect,diskuse,eviction,execution,fairsem,front,guest,lifecycle,mcp,mcphttp,pool,prepare,pressure,proxy,quota,spool,store,stream,teardown,template,warmbox,webhook,workbox}/... ./internal/driver/{drivertest,fake,remote}/...)

suite_lint() {
	if [ -n "$whole" ]; then scripts/lint.sh --without-tests; else scripts/lint.sh; fi
}
# Packages with tests that need gVisor, which the suites gvisor, e2e and system run: elsewhere they are linked to be skipped. Their
# other tests run there, too.
boxed=(./internal/driver/gvisor ./test/{acme,attack,chromium,cluster,crash,diskfull,e2e,hostile,loopfs,monitoring,power,soak,storm,upgrade})
# What the suites race, gvisor, e2e and system run is not run twice.
suite_go() {
	local packages
	packages=$(go list ./... | grep -vxFf <(go list "${racy[@]}" "${boxed[@]}")) || return
	# shellcheck disable=SC2086 # a list
	tidily go test -v -timeout 60m $packages
}
# Packages that only compute, whose instrumented code would take most of the time. SQLite is C translated to Go. The
# others compute results from their arguments: regular expressions, compression, base64, pictures, hashes of passwords, YAML of the OpenAPI document.
plainly=(-gcflags={modernc.org,regexp,compress,encoding/base64,image/png,golang.org/x/crypto/argon2,golang.org/x/crypto/blake2b,github.com/danielgtaylor/huma/v2/yaml}"/...=-race=false -dwarf=false")
# With the default, garbage collection takes a tenth of the CPU time of these tests.
suite_race() { GOGC=400 CGO_ENABLED=1 tidily go test -race "${plainly[@]}" -v -timeout 60m "${racy[@]}"; }
suite_gvisor() { MODBOX_TEST_GVISOR=1 go test -v -count=1 -p 1 -timeout 60m ./internal/driver/gvisor/...; }
agentuity_images=(python:3.13 node:lts)
# The other tests of the package run in the suite go. It begins with the images that the suite agentuity has.
suite_images() {
	use_cached_images && cached_images agentuity "${agentuity_images[@]}" && cached_images all && MODBOX_TEST_IMAGES=1 MODBOX_TEST_IMAGES_DIR=$images_cache/all/images go test -v -count=1 -timeout 60m -run '^TestBuiltinImages$' ./internal/image
}
# The longest suite, in a lane of its own: many of these tests wait for deadlines and restarts.
suite_e2e() { use_cached_images && MODBOX_TEST_GVISOR=1 go test -v -count=1 -timeout 60m ./test/e2e; }
# Four packages are of other suites: browser has the image of one, cluster another, e2e is the third, and go runs control.
suite_system() {
	# shellcheck disable=SC2046 # a list
	use_cached_images && MODBOX_TEST_GVISOR=1 go test -v -count=1 -p 1 -timeout 60m $(go list ./test/... | grep -vE '/(chromium|cluster|control|e2e)$')
}
# Docker's own tools and ours make the same files of one Dockerfile.
suite_docker() { use_cached_images && MODBOX_TEST_GVISOR=1 MODBOX_TEST_DOCKER=1 go test -v -count=1 -timeout 60m -run '^TestSameFilesAsDocker$' ./test/e2e; }
# The store, and the packages whose promises depend on it, on PostgreSQL: one server, and a database for each test. Then several servers on a database; at the
# end the tests of the API, whose requests go to another server than the server of the sandbox.
suite_postgres() {
	tidily scripts/with-postgres.sh go test -v -count=1 -timeout 60m ./internal/store ./internal/store/{accounts,imagerows,webhookrows,workerrows} ./internal/{audit,eventstream,registry,catalogue} &&
		tidily scripts/with-postgres.sh go test -v -count=1 -run Postgres ./internal/{server,cli} &&
		tidily scripts/with-postgres.sh go test -v -count=1 -run 'Parts|Several|OtherServer|OfForwarded|BehindBalancer|OwnerOfShell' ./internal/{api,auth/sso/ssotest,console,dialect/e2b,mcphttp,sshd} &&
		tidily scripts/with-postgres.sh go test -v -count=1 -run 'OtherServer|AnotherServer|ThePrimary|TwoServers' ./internal/lifecycle &&
		MODBOX_TEST_ELSEWHERE=1 tidily scripts/with-postgres.sh go test -v -count=1 -skip 'Parts|OtherServer|OfForwarded' ./internal/{api,proxy} ./internal/dialect/{agentuity,modbox}
}
# The object store, and archives and backups in it, on a real S3 server and on Azurite, the server of Azure Blob Storage for tests; the suite go runs the same tests on directories.
# Then a whole server with S3.
suite_s3() {
	scripts/npm-ci.sh test/azurite &&
		MODBOX_TEST_AZURE=$PWD/test/azurite/node_modules/.bin/azurite-blob tidily scripts/with-s3.sh go test -v -count=1 -run 'S3|Azure' ./internal/{object,archive,backup,output,imagearchive} &&
		use_cached_images && MODBOX_TEST_GVISOR=1 scripts/with-s3.sh go test -v -count=1 -timeout 60m -run S3 ./test/e2e
}
# The Helm chart, rendered by Helm's library and read with the types of Kubernetes. A module of its own, which is vetted here.
suite_chart() { GOFLAGS=${GOFLAGS/-vet=off/} tidily go -C test/chart test -v -count=1 -timeout 60m ./...; }
suite_typescript() { scripts/npm-ci.sh sdk/typescript && npm test --prefix sdk/typescript; }
# A release of the working copy, and each of its files installed and tried.
suite_release() { use_cached_images && test/release/run.sh; }
suite_python() { sdk/python/test.sh unit; }
# The SDKs against a real server: its own, so that the quickstart's is left alone.
suite_sdks() { use_cached_images && MODBOX_WEBHOOKS_ALLOW_CIDRS=127.0.0.1/32 scripts/with-server.sh scripts/test-sdks.sh; }
# The code of the product's documentation, as published, against a real server.
suite_seeds() { use_cached_images && scripts/with-server.sh test/seeds/run.sh; }
# The published Agentuity client against a real server. A runtime that is not here, bun, is built at its first use.
suite_agentuity() {
	use_cached_images && cached_images agentuity "${agentuity_images[@]}" &&
		MODBOX_IMAGES=$images_cache/agentuity/images MODBOX_SSH_LISTEN=127.0.0.1:0 scripts/with-server.sh test/agentuity/run.sh
}
# The published E2B clients against a real server.
suite_e2b() { use_cached_images && cached_images e2b desktop && MODBOX_IMAGES=$images_cache/e2b/images test/e2b/run.sh; }
# The official MCP client against a real server, over both transports.
suite_mcp() { use_cached_images && scripts/with-server.sh test/mcp/run.sh; }
# A browser in a sandbox, driven by Playwright over the sandbox's URL; development servers
# in a sandbox, and pages of other origins, opened in a browser of this machine. Before, boxes and sandboxes of modbox/chromium.
suite_browser() {
	local images
	images=$(mktemp -d)
	use_cached_images && cached_images browser chromium data sandbox sandbox-lite && lend_images "$images_cache/browser/images" "$images" &&
		MODBOX_TEST_GVISOR=1 MODBOX_TEST_CHROMIUM=1 MODBOX_TEST_IMAGE_DIR=$images go test -v -count=1 -timeout 60m ./test/chromium &&
		MODBOX_POOL_SIZE=0 MODBOX_IMAGES=$images_cache/browser/images MODBOX_HTTP_CORS_ORIGINS=http://allowed.localhost scripts/with-server.sh test/browser/run.sh
	local code=$?
	rm -rf "$images"
	return "$code"
}
# Not among the suites of make test, because it builds Kubernetes: make test-cluster. The tests run where there is no network, and are built before.
suite_cluster() {
	local values
	use_cached_images && cached_images agentuity "${agentuity_images[@]}" && go test -c -o tmp/cluster.test ./test/cluster && go -C test/chart build -o "$PWD/tmp/render" ./render || return
	for values in values standbys standbypods active activepods clients persandbox; do
		(cd test/chart && ../../tmp/render "../cluster/testdata/$values.yaml" >"../../tmp/chart-$values.yaml") || return
	done
	scripts/npm-ci.sh sdk/typescript && npm run build --prefix sdk/typescript && scripts/npm-ci.sh test/agentuity || return
	local code=0
	local -x MODBOX_TEST_GVISOR=1 MODBOX_KUBE_LOGS=$logs/kube MODBOX_TEST_CHART=$PWD/tmp/chart-values.yaml MODBOX_TEST_CHART_STANDBYS=$PWD/tmp/chart-standbys.yaml \
		MODBOX_TEST_CHART_CLIENTS=$PWD/tmp/chart-clients.yaml MODBOX_TEST_CHART_PODS=$PWD/tmp/chart-persandbox.yaml \
		MODBOX_TEST_CHART_STANDBYPODS=$PWD/tmp/chart-standbypods.yaml MODBOX_TEST_CHART_ACTIVE=$PWD/tmp/chart-active.yaml \
		MODBOX_TEST_CHART_ACTIVEPODS=$PWD/tmp/chart-activepods.yaml MODBOX_TEST_AGENTUITY_IMAGE_DIR=$images_cache/agentuity/images
	on_disk=1 tidily scripts/with-s3.sh scripts/with-kubernetes.sh sh -c 'cd test/cluster && ../../tmp/cluster.test -test.v -test.timeout 60m -test.run TestClients && ../../tmp/cluster.test -test.v -test.timeout 60m -test.run TestPodsOfLostNode' || code=1
	tidily scripts/with-kubernetes.sh sh -c 'cd test/cluster && ../../tmp/cluster.test -test.v -test.timeout 60m -test.skip "TestClients|TestPodsOfLostNode|TestNodeLost" && ../../tmp/cluster.test -test.v -test.timeout 60m -test.run TestNodeLost' || code=1
	return "$code"
}

# The programs under examples/, which check what they print.
suite_examples() { use_cached_images && scripts/with-server.sh examples/run.sh; }

# The lanes, and what they take when they have ended their own: the longest suites first, so that the lanes end
# together. Suites that build the TypeScript SDK in the working copy wait for each other: the first one builds it.
computing=(race lint go)
sandboxed=(e2e system)
building=(typescript sdks browser)
others=(gvisor e2b agentuity release chart examples postgres s3 images docker python mcp seeds)
suites=("${computing[@]}" "${sandboxed[@]}" "${building[@]}" "${others[@]}")

# tidily COMMAND...: fails also when the tests leave something in the directory
# for temporary files. Its name is short, for sockets, and the same for each run of
# a suite, for the cache of tests. It is in memory where there is room, because the
# store syncs each commit. With on_disk=1 it is not: large files of Pods in memory count for their limits.
tidily() {
	local dir code=0 parent=/tmp
	if [ -z "${on_disk:-}" ] && [ "$(df --output=avail -B1M /dev/shm 2>/dev/null | tail -n 1)" -ge 4096 ]; then parent=/dev/shm; fi
	dir=$parent/mbt-$(echo "$PWD ${FUNCNAME[1]}" | sha256sum | cut -c1-8)
	rm -rf "$dir"
	mkdir "$dir" || return
	TMPDIR=$dir "$@" || code=$?
	if [ -n "$(ls -A "$dir")" ]; then
		echo "--- FAIL: the tests left in the directory for temporary files: $(find "$dir" -mindepth 1 -printf '%P\n' | head -n 10 | paste -sd ' ')"
		find "$dir" -mindepth 1 -ls | head -n 100
		code=1
	fi
	rm -rf "$dir"
	return "$code"
}

# summed WORD FILE: the number in a last line "N passed, N failed".
summed() { tail -n 1 "$2" | grep -E '^[0-9]+ passed, [0-9]+ failed$' | grep -oE "[0-9]+ $1" | grep -oE '[0-9]+' || echo 0; }
# passed, failed, skipped FILE: how many tests did, by what go test,
# node --test and unittest print.
count() { # PATTERN FILE
	grep -cE "$1" "$2" || true
}
passed() { echo $(($(count '^ *--- PASS' "$1") + $(count '^ *(ok [0-9]+ -|✔ )' "$1") - $(count '^ *ok .* # SKIP' "$1") + $(count ' \.\.\. ok$' "$1") + $(summed passed "$1"))); }
failed() { echo $(($(count '^ *--- FAIL|^FAIL.*\[(build|setup) failed\]' "$1") + $(count '^ *(not ok [0-9]+ -|✖ .*\()' "$1") + $(count ' \.\.\. (FAIL|ERROR)$' "$1") + $(summed failed "$1"))); }
skipped() { echo $(($(count '^ *--- SKIP' "$1") + $(count '^ *(﹣ |ok .* # SKIP)' "$1") + $(count ' \.\.\. skipped ' "$1"))); }

# why FILE: the failed tests, with the messages just before.
why() {
	local found
	found=$(grep -nE -B 6 '^ *--- FAIL|^FAIL.*\[|^panic:|WARNING: DATA RACE|^ *not ok|^ *✖ .*\(|\.\.\. (FAIL|ERROR)$|^[a-z]+ +FAILED$' "$1" | grep -vE '^[0-9]+-(=== |ok |\? | *--- (PASS|SKIP))')
	if [ -z "$found" ]; then found=$(tail -n 15 "$1"); fi
	printf '== %s\n%s\n' "${1#"$PWD"/}" "$(head -n 40 <<<"$found" | cut -c1-300)"
	# What follows a failed test of Node.js: the error, and where it was thrown.
	grep -E -A 24 '^ *not ok' "$1" | grep -vE "^ *(ok|# Subtest|not ok .*# SKIP)" | head -n 60 | cut -c1-300
	# Again, with the last messages of each failed Go test, which a server's log can hide.
	awk '/^ +[[:alnum:]_]+[.]go:[0-9]+: / { said[n++] = $0 }
		/^--- (PASS|SKIP)/ { n = 0 }
		/^--- FAIL/ { for (i = n > 3 ? n - 3 : 0; i < n; i++) print substr(said[i], 1, 300); print; n = 0 }' "$1" | head -n 40
}

# run NAME: runs a suite and prints its line of result, which it keeps beside the log: how many
# tests passed, failed and were skipped, elapsed time and CPU time.
run() {
	local name=$1 log=$logs/$1.log began=$SECONDS code=0 p f s note="" verdict=ok line cpu TIMEFORMAT='%U + %S'
	cpu=$( { time "suite_$name" >"$log" 2>&1; } 2>&1 ) || code=$?
	p=$(passed "$log") f=$(failed "$log") s=$(skipped "$log")
	if [ "$code" != 0 ] && [ "$f" = 0 ]; then f=1 note="ended with code $code"; fi
	if [ "$p" = 0 ] && [ "$f" = 0 ]; then f=1 note="ran no test"; fi
	if [ "$f" != 0 ]; then verdict=FAILED note="$note (${log#"$PWD"/})"; fi
	line=$(printf '%-12s %-7s %5d passed %3d failed %3d skipped %5ds %5.0fs CPU %s' "$name" "$verdict" "$p" "$f" "$s" $((SECONDS - began)) "$(awk "BEGIN { print $cpu }")" "$note")
	echo "$line"
	echo "$line" >"$logs/$name.result"
	if [ "$f" != 0 ]; then why "$log" >"$logs/$name.why"; fi
}

chosen=("$@") whole=
if [ $# = 0 ]; then whole=1; fi
# lane NAME...: runs the suites that no other lane has begun.
lane() {
	local name
	for name; do
		if mkdir "$begun/$name" 2>/dev/null; then run "$name"; fi
	done
}

for name in "${chosen[@]}"; do
	if ! declare -F "suite_$name" >/dev/null; then
		echo "no suite $name; there are: ${suites[*]}" >&2
		exit 2
	fi
done
if [ $# = 0 ]; then chosen=("${suites[@]}"); fi
for name in "${chosen[@]}"; do rm -f "$logs/$name".{log,result,why}; done
if [ $# = 0 ]; then
	begun=$(mktemp -d)
	trap 'rm -rf "$begun"' EXIT
	# The lane that computes has less priority: the others, which wait for deadlines and restarts, take the longest.
	{ renice -n 5 -p "$BASHPID" >/dev/null; lane "${computing[@]}" "${others[@]}" "${sandboxed[@]}"; } &
	lane e2e "${others[@]}" "${computing[@]}" &
	lane system "${others[@]}" "${computing[@]}" &
	lane "${building[@]}" "${others[@]}" "${sandboxed[@]}" "${computing[@]}" &
	wait
else
	for name in "${chosen[@]}"; do run "$name"; done
fi

total_passed=0 total_failed=0
echo
for name in "${chosen[@]}"; do
	cat "$logs/$name.result" || exit
	read -r _ _ p _ f _ <"$logs/$name.result"
	total_passed=$((total_passed + p)) total_failed=$((total_failed + f))
done
for name in "${chosen[@]}"; do
	if [ -f "$logs/$name.why" ]; then printf '\n%s\n' "$(cat "$logs/$name.why")"; fi
done
echo "$total_passed passed, $total_failed failed"
[ "$total_failed" = 0 ]
