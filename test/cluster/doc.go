// Package cluster tests Modbox on a Kubernetes cluster, which scripts/with-kubernetes.sh starts.
package cluster
