package cluster_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
)

// TestStandbysWithPods installs the chart with two servers and a Pod for each sandbox: the server that takes over goes on with the Pods.
func TestStandbysWithPods(t *testing.T) {
	s := installStandbys(t, "podstandbys", os.Getenv("MODBOX_TEST_CHART_STANDBYPODS"))
	removeWorkersFirst(t, s.namespace)
	permitDisks(t)
	t.Run("takeovers", s.takeovers)
	t.Run("update", s.update)
	t.Run("crash", s.crash)
}

// takeovers kills the active server again and again, while a sandbox counts.
func (s standbys) takeovers(t *testing.T) {
	bash := func(id, script string) string {
		t.Helper()
		out, err := s.Sandboxes.Exec(t.Context(), id, client.Command{Argv: []string{"/bin/bash", "-c", script}, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out.Stdout))
	}
	create := func() string {
		t.Helper()
		sb, err := s.Sandboxes.Create(t.Context(), client.CreateOptions{Image: "modbox/base"})
		if err != nil {
			t.Fatal(err)
		}
		return sb.ID
	}
	ids := []string{create()}
	bash(ids[0], counter)
	before := s.pods(t, ".metadata.name")
	for n := range 3 {
		if n > 0 {
			t.Logf("the other server answered after %v", s.takeOver(t))
		}
		if got := bash(ids[0], increment); got != fmt.Sprint(n+1) {
			t.Errorf("the counter is %q, want %d", got, n+1)
		}
		if got := s.pods(t, ".metadata.name"); !slices.Equal(got, before) {
			t.Errorf("the Pods are %v, want %v", got, before)
		}
		ids = append(ids, create())
		bash(ids[len(ids)-1], "true")
		if before = s.pods(t, ".metadata.name"); len(before) != len(ids) {
			t.Errorf("the Pods are %v, want %d", before, len(ids))
		}
	}
	for _, id := range ids {
		if _, err := s.Sandboxes.Delete(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	until(t, "no Pod of a sandbox", func() bool { return len(s.pods(t, ".metadata.name")) == 0 })
}
