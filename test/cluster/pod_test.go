package cluster_test

import "testing"

// TestPod runs a Pod on each node.
func TestPod(t *testing.T) {
	address(t)
	for _, node := range []string{"node-1", "node-2"} {
		t.Run(node, func(t *testing.T) {
			apply(t, `
apiVersion: v1
kind: Pod
metadata: {name: plain-`+node+`, labels: {modbox-test: plain}}
spec:
  nodeSelector: {kubernetes.io/hostname: `+node+`}
  terminationGracePeriodSeconds: 1
  containers:
  - {name: pause, image: "pause:test", imagePullPolicy: Never}
`)
			ready(t, "plain-"+node)
			if got := kubectl(t, "", "get", "pod", "plain-"+node, "-o", "jsonpath={.spec.nodeName}"); got != node {
				t.Errorf("the Pod is on %q, want %s", got, node)
			}
		})
	}
}
