package workerrows_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/store/storetest"
	"github.com/modbox/modbox/internal/store/workerrows"
	"github.com/modbox/modbox/internal/worker"
)

func TestRows(t *testing.T) {
	st := storetest.Open(t, filepath.Join(t.TempDir(), "test.db"))
	rows := workerrows.New(st.DB)
	at := time.Unix(1_700_000_000, 0).UTC()
	first := worker.Record{
		Identity: worker.Identity{ID: "worker-B", Key: "ff"}, Name: "b", Status: worker.Ready, Address: "192.0.2.1:5", Version: "1.0",
		MemoryBytes: 64 << 30, Cores: 16, Features: "all", JoinedAt: at, SeenAt: at,
	}
	second := worker.Record{Identity: worker.Identity{ID: "worker-A", Key: "ee"}, Name: "a", Status: worker.Ready, JoinedAt: at.Add(time.Hour)}
	for _, w := range []worker.Record{second, first} {
		if err := rows.Save(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	first.Status, first.SeenAt, first.Cores, first.Features = worker.Draining, at.Add(time.Minute), 8, "most"
	if err := rows.Save(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	list, err := rows.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]worker.Record{first, second}, list); d != "" {
		t.Errorf("List() (-want +got):\n%s", d)
	}
	second.Name = "b"
	if err := rows.Save(t.Context(), second); err == nil {
		t.Error("two workers have the same name")
	}
}
