package store_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/store"
	"github.com/modbox/modbox/internal/store/storetest"
)

// TestCommitsOfOtherParts: the owner of a part of the shards hears of the commits of the others at once, also after its connection was lost.
func TestCommitsOfOtherParts(t *testing.T) {
	needPostgres(t)
	at := storetest.At(t, filepath.Join(t.TempDir(), "modbox.db"))
	db := makeWords(t, at)
	lower, err := owner(t, at, lowerHalf)
	if err != nil {
		t.Fatal(err)
	}
	upper, err := owner(t, at, upperHalf)
	if err != nil {
		t.Fatal(err)
	}
	late := time.After(90 * time.Second) // looks at an interval of 5 seconds would not do
	heard := func(writes, waits *store.Store, word string) {
		t.Helper()
		committed := waits.Committed()
		if err := insertWord(t.Context(), writes, word); err != nil {
			t.Fatal(err)
		}
		select {
		case <-committed:
		case <-late:
			t.Fatalf("the commits up to %q are not heard of in time", word)
		}
	}
	for round := range 20 {
		heard(lower, upper, fmt.Sprint("lower", round))
		heard(upper, lower, fmt.Sprint("upper", round))
	}
	var ended int
	if err := db.QueryRowContext(t.Context(), `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE datname = current_database() AND query = 'LISTEN modbox_commits'`).Scan(&ended); err != nil || ended != 2 {
		t.Fatalf("%d connections that listen were ended, %v, want 2", ended, err)
	}
	for round := range 20 {
		heard(lower, upper, fmt.Sprint("again", round))
	}
}
