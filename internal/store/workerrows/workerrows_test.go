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
		MemoryBytes: 64 << 30, Cores: 16, Features: "all", Home: 12, JoinedAt: at, SeenAt: at,
	}
	second := worker.Record{Identity: worker.Identity{ID: "worker-A", Key: "ee"}, Name: "a", Status: worker.Ready, JoinedAt: at.Add(time.Hour)}
	for _, w := range []worker.Record{second, first} {
		if err := rows.Save(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	first.Status, first.SeenAt, first.Cores, first.Features, first.Home = worker.Draining, at.Add(time.Minute), 8, "most", 4
	first.Use = worker.Use{ConnectedAt: at.Add(time.Second), Boxes: 3, PromisedBytes: 5 << 30}
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

func TestAdd(t *testing.T) {
	st := storetest.Open(t, filepath.Join(t.TempDir(), "test.db"))
	rows := workerrows.New(st.DB)
	pod := worker.Record{Identity: worker.Identity{ID: worker.NewSuppliedID()}, Name: "pod", Status: worker.Ready}
	if err := rows.Save(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	w := worker.Record{Identity: worker.Identity{ID: "worker-A"}, Name: "a", Status: worker.Ready, Home: 8}
	for _, step := range []struct {
		records int
		added   bool
	}{{1, false}, {0, true}, {0, false}} {
		added, err := rows.Add(t.Context(), w, step.records)
		if err != nil || added != step.added {
			t.Errorf("Add() beside %d records = %v, %v", step.records, added, err)
		}
	}
	if _, err := rows.Add(t.Context(), w, 1); err == nil {
		t.Error("Add() replaces a record")
	}
	list, err := rows.List(t.Context())
	if err != nil || len(list) != 2 || list[0].Home+list[1].Home != 8 {
		t.Errorf("List() = %+v, %v", list, err)
	}
}
