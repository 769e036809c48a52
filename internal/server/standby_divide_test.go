package server

import (
	"strings"
	"syscall"
	"testing"

	"github.com/modbox/modbox/internal/driver/fake"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/storetest"
)

// TestDivideOnPostgres checks that servers with a greater replica.active than before move the sandboxes to workers of their parts first, and then work on
// a part each, with all sandboxes.
func TestDivideOnPostgres(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("the suite postgres runs this test, with a server in MODBOX_TEST_POSTGRES")
	}
	url, stateDir := storetest.StartCluster(t).URL("postgres"), t.TempDir()
	before := newReplica(t, "before", stateDir, url)
	a, b := newPart(t, "2", "a", stateDir, url), newPart(t, "2", "b", stateDir, url)
	before.launch()
	host := fake.NewHost(t.TempDir())
	for name, h := range map[string]*fake.Host{"x": host, "y": host.Twin()} {
		startWorkerOn(t, h, name, t.TempDir(), stateDir, before.workers, a.workers, b.workers)
	}
	before.active()
	buildApp(t, before.client())
	var ids []string
	for {
		id := before.create()
		ids = append(ids, id)
		workers, err := before.client().Workers.List().Collect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(workers) == 2 && len(ids) >= 6 && !belong(t, before, ids) {
			break
		}
	}
	before.end(syscall.SIGTERM)

	a.launch()
	b.launch()
	whole, other := a, b
	a.until("a server works on all sandboxes", func() bool {
		for _, r := range []*replica{a, b} {
			if strings.Contains(r.logged(), "until it has moved them") {
				if whole = r; r == b {
					other = a
				}
				return true
			}
		}
		return false
	})
	if strings.Contains(other.logged(), "until it has moved them") {
		t.Error("both servers work on all sandboxes")
	}
	whole.until("it ends", func() bool { return strings.Contains(whole.logged(), "the server starts again") })
	_ = whole.cmd.Wait()
	whole.launch() // as a supervisor does
	const lower, upper = "01234567", "89abcdef"
	a.until("two servers are active", func() bool { return a.ranges()+b.ranges() == lower+upper || b.ranges()+a.ranges() == lower+upper })
	for _, id := range ids {
		owner := a
		if !strings.Contains(a.ranges(), id[len(id)-2:len(id)-1]) {
			owner = b
		}
		owner.echoes(id)
	}
	a.create()
	b.create()
	for _, r := range []*replica{a, b} {
		if strings.Contains(r.logged(), "panic") {
			t.Error("a server panics")
		}
	}
}

// belong reports whether all sandboxes are on workers of the part that is to have them: the first worker that joined is of the first part.
func belong(t *testing.T, r *replica, ids []string) bool {
	t.Helper()
	workers, err := r.client().Workers.List().Collect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		sb, err := r.client().Sandboxes.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		part := 0
		if sandbox.Parts(2)[1].Has(sandbox.ID(id)) {
			part = 1
		}
		if sb.Worker != workers[part].Name {
			return false
		}
	}
	return true
}
