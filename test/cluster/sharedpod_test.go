package cluster_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/modbox/modbox/client"
)

// shared checks that sandboxes of a workspace share Pods if the setting says so, and no others.
func (p perSandbox) shared(t *testing.T) {
	p.set(t, "MODBOX_KUBERNETES_SANDBOXES_PER_POD=2")
	defer p.set(t, "MODBOX_KUBERNETES_SANDBOXES_PER_POD-")
	ws, err := p.Workspaces.Create(t.Context(), client.WorkspaceOptions{Name: "other"})
	if err != nil {
		t.Fatal(err)
	}
	inOther, err := client.New(p.url, p.token, client.WithWorkspace(ws.ID))
	if err != nil {
		t.Fatal(err)
	}
	other := perSandbox{inOther, p.url, p.token}
	start := func(p perSandbox) string {
		t.Helper()
		sb, err := p.Sandboxes.Create(t.Context(), client.CreateOptions{Image: "modbox/base"})
		if err != nil {
			t.Fatal(err)
		}
		p.bash(t, sb.ID, counter)
		p.count(t, sb.ID, 1)
		return sb.ID
	}
	pods := func(after string, want int) {
		t.Helper()
		until(t, "the Pods are as many as expected "+after, func() bool { return len(p.pods(t, ".metadata.name")) == want })
	}
	first, second := start(p), start(p)
	pods("for two sandboxes", 1)
	if got := p.pods(t, ".spec.containers[0].resources.limits.memory"); !slices.Equal(got, []string{"1536Mi"}) {
		t.Errorf("the Pod has %v of memory, want 1536Mi for two sandboxes of 512Mi with an overhead of 256Mi each", got)
	}
	third := start(p)
	pods("for a third sandbox", 2)
	guest := start(other)
	pods("for a sandbox of another workspace", 3)
	if got := strings.Join(p.pods(t, ".metadata.labels.modbox/workspace"), " "); strings.Count(got, ws.ID) != 1 {
		t.Errorf("the Pods are of the workspaces %s", got)
	}

	pause := func(id string) {
		t.Helper()
		if _, err := p.Sandboxes.Pause(t.Context(), id); err != nil {
			t.Fatalf("pause: %v", err)
		}
	}
	pause(first)
	p.count(t, second, 2)
	pods("after a pause of one of two sandboxes", 3)
	pause(second)
	pods("after a pause of both", 2)
	p.count(t, first, 2) // on the Pod of the third
	pods("after a resume", 2)

	kubectl(t, "", "-n", perSandboxNamespace, "delete", "pod", "modbox-0", "--grace-period=0", "--force")
	p.rolledOut(t)
	p.count(t, third, 2)
	pause(first)
	pods("after a restart of the server and a pause", 2)
	p.count(t, first, 3)
	pods("after a resume by the server that was restarted", 2)
	other.count(t, guest, 2)

	// As the drain of a node.
	full := kubectl(t, "", "-n", perSandboxNamespace, "get", "pods", "-l", "app.kubernetes.io/component=sandbox,modbox/workspace!="+ws.ID, "-o", "jsonpath={.items[*].metadata.name}")
	kubectl(t, "", "-n", perSandboxNamespace, "delete", "pod", full, "--timeout", timeLimit.String())
	p.count(t, first, 4)
	p.count(t, third, 3)
	pods("after the end of a Pod whose sandboxes move", 2)

	if _, err := inOther.Sandboxes.Delete(t.Context(), guest); err != nil {
		t.Error(err)
	}
	for _, id := range []string{first, second, third} {
		if _, err := p.Sandboxes.Delete(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	p.none(t, "after the end of the sandboxes")
}

// gives checks that Pods of the pool give way to sandboxes when there are as many Pods as may be.
func (p perSandbox) gives(t *testing.T) {
	p.set(t, "MODBOX_KUBERNETES_MAX_PODS=3", "MODBOX_POOL_SIZE=2")
	defer p.set(t, "MODBOX_KUBERNETES_MAX_PODS-", "MODBOX_POOL_SIZE-")
	until(t, "the pool has its boxes", func() bool { return p.metric(t, "modbox_pool_boxes") == 2 })
	var ids []string
	for range 2 {
		sb, err := p.Sandboxes.Create(t.Context(), client.CreateOptions{Image: "modbox/base", Resources: client.Resources{Memory: "320Mi"}}) // no box of the pool is like that
		if err == nil {
			sb, err = p.Sandboxes.Wait(t.Context(), sb.ID, client.Running)
		}
		if err != nil || sb.State != client.Running {
			t.Fatalf("the sandbox is %+v, %v", sb, err)
		}
		ids = append(ids, sb.ID)
	}
	if n := len(p.pods(t, ".metadata.name")); n > 3 {
		t.Errorf("there are %d Pods, want 3 at most", n)
	}
	if got := p.pods(t, ".metadata.labels.modbox/workspace"); len(got) != 2 {
		t.Errorf("%d Pods are of sandboxes, want 2", len(got))
	}
	if log := kubectl(t, "", "-n", perSandboxNamespace, "logs", "modbox-0"); !strings.Contains(log, "a box of the pool is given up for a sandbox that waits") {
		t.Error("no box of the pool has given way")
	}
	for _, id := range ids {
		if _, err := p.Sandboxes.Delete(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
}
