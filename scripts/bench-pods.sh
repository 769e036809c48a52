#!/bin/bash
# Measures what the Pods of many sandboxes cost a server and the control plane of Kubernetes, on the cluster of the tests with fake nodes, which
# kwok has (make test-cluster builds the cluster at its first use). Arguments are numbers of Pods, by default 1000 and 5000. As root.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${XDG_CACHE_HOME:-$HOME/.cache}/modbox/kwok
export CGO_ENABLED=0
scripts/build.sh
mkdir -p "$cache" tmp
GOFLAGS='-trimpath -gcflags=all=-dwarf=false -buildvcs=false' go -C test/cluster/kwok build -ldflags '-s -w' -o "$cache/kwok" sigs.k8s.io/kwok/cmd/kwok
stages=$(go -C test/cluster/kwok list -m -f '{{.Dir}}' sigs.k8s.io/kwok)/kustomize/stage
for stage in node/fast/node-initialize node/heartbeat-with-lease/node-heartbeat-with-lease pod/fast/pod-ready pod/fast/pod-delete; do
	echo ---
	cat "$stages/$stage.yaml"
done >"$cache/stages.yaml"
GOFLAGS='-trimpath -vet=off' go test -c -o tmp/cluster.test ./test/cluster
go -C test/chart run ./render ../cluster/testdata/persandbox.yaml >tmp/chart-persandbox.yaml
export MODBOX_TEST_GVISOR=1 MODBOX_TEST_KWOK=$cache MODBOX_TEST_SCALE_PODS="${*:-1000 5000}" MODBOX_TEST_CHART_PODS=$PWD/tmp/chart-persandbox.yaml
scripts/with-kubernetes.sh tmp/cluster.test -test.v -test.timeout 60m -test.run '^TestScale$'
