package e2e_test

import (
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// fromPool creates sandboxes until one was given a box of the pool, and returns it.
func fromPool(t *testing.T, s *testserver.Server, o client.CreateOptions) *client.Sandbox {
	t.Helper()
	deadline := time.Now().Add(5 * time.Minute)
	for time.Now().Before(deadline) {
		sb := s.MustCreate(o)
		events, err := s.Sandboxes.Events(sb.ID, client.EventsOptions{}).Collect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range events {
			if ev.Data["from_pool"] == "true" {
				return sb
			}
		}
		if _, err := s.Sandboxes.Delete(t.Context(), sb.ID); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("no sandbox was given a box of the pool in five minutes")
	return nil
}

func TestSandboxFromThePool(t *testing.T) {
	s := testserver.Start(t, "--pool-size", "1")
	o := client.CreateOptions{
		Name: "warm", Image: "modbox/base", Resources: client.Resources{Memory: "256Mi", CPU: "500m", Disk: "64Mi"},
		Env: map[string]string{"WHO": "me"}, TTL: 10 * time.Minute,
	}
	sb := fromPool(t, s, o)
	if sb.Resources.Memory != "256Mi" {
		t.Errorf("resources %+v, want those that were asked for", sb.Resources)
	}
	res := s.Bash(sb.ID, `echo "$WHO $(hostname) $MODBOX_SANDBOX_NAME"; awk '/MemTotal/ { print $2 <= 262144 }' /proc/meminfo
		dd if=/dev/zero of=/big bs=1M count=80 2>/dev/null || echo full; grep -h CapEff /proc/1/status /proc/self/status | sort -u | wc -l`, time.Minute)
	lines := strings.Split(strings.TrimSpace(string(res.Stdout)), "\n")
	if len(lines) != 4 || lines[0] != "me warm warm" || lines[1] != "1" || lines[2] != "full" || lines[3] != "1" {
		t.Errorf("in the sandbox: %q, want its environment, host name and limits, and an agent with the capabilities of all", res.Stdout)
	}

	// Killed with a box in the pool; the next server has none and must not leave it.
	fromPool(t, s, client.CreateOptions{Image: o.Image, Resources: o.Resources, TTL: o.TTL})
	s.Kill()
	s.SetArgs("--pool-size", "0")
	s.Launch()
	res = s.Bash(sb.ID, "echo $WHO", time.Minute)
	if string(res.Stdout) != "me\n" {
		t.Errorf("after a restart: %+v", res)
	}
	for other, err := range s.Sandboxes.List(client.ListOptions{}).All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Sandboxes.Delete(t.Context(), other.ID); err != nil {
			t.Fatal(err)
		}
	}
	if left := s.Left(""); len(left) > 0 {
		t.Errorf("left of the pool:\n%s", strings.Join(left, "\n"))
	}
}
