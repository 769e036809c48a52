package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/cli/base"
	"github.com/modbox/modbox/internal/store/workerrows"
	"github.com/modbox/modbox/internal/worker"
)

func TestWorkers(t *testing.T) {
	dir, st := stateDir(t)
	rows := workerrows.New(st.DB)
	now := time.Now()
	for _, w := range []worker.Record{
		{Identity: worker.Identity{ID: "w-1", Key: "aa"}, Name: "one", Status: worker.Ready, MemoryBytes: 8 << 30, Cores: 4, JoinedAt: now, SeenAt: now},
		{Identity: worker.Identity{ID: "w-2", Key: "bb"}, Name: "two", Status: worker.Draining, JoinedAt: now, SeenAt: now},
	} {
		if err := rows.Save(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	workers := func(args ...string) result {
		t.Helper()
		return invoke(t, nil, "", append(append([]string{"workers"}, args...), "--state-dir", dir)...)
	}
	if r := workers("ls"); r.code != 0 || !strings.Contains(r.stdout, "one") || !strings.Contains(r.stdout, "8.0 GiB") || !strings.Contains(r.stdout, "draining") {
		t.Errorf("ls = %+v", r)
	}
	unlock := runServer(t, dir, "127.0.0.1:1")
	if r := workers("rm", "one"); r.code != base.ExitFailure || r.stdout != "" {
		t.Errorf("rm beside a server = %+v, want it refused", r)
	}
	unlock()
	if r := workers("rm", "three"); r.code != base.ExitFailure || !strings.Contains(r.stderr, "three") {
		t.Errorf("rm of an unknown worker = %+v", r)
	}
	if r := workers("rm", "one"); r.code != 0 || r.stdout != "one was removed\n" {
		t.Errorf("rm = %+v", r)
	}
	list, err := rows.List(t.Context())
	if err != nil || list[0].Status != worker.Gone || list[0].Name != "w-1" || list[0].Key != "aa" || list[1].Status != worker.Draining {
		t.Errorf("the records are %+v, %v", list, err)
	}
	if r := workers("ls", "--json"); r.code != 0 || strings.Contains(r.stdout, "w-1") || !strings.Contains(r.stdout, `"name": "two"`) || strings.Contains(r.stdout, "bb") {
		t.Errorf("ls --json = %+v", r)
	}
	if r := workers("rm", "w-1"); r.code != base.ExitFailure {
		t.Errorf("rm of a removed worker = %+v", r)
	}
}
