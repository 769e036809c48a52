package store_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/quota"
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

// TestReleasesOfOtherParts: a server hears when another has released something of a quota, and not of its own releases and of other commits.
func TestReleasesOfOtherParts(t *testing.T) {
	needPostgres(t)
	at := storetest.At(t, filepath.Join(t.TempDir(), "modbox.db"))
	words := makeWords(t, at)
	lower, err := owner(t, at, lowerHalf)
	if err != nil {
		t.Fatal(err)
	}
	upper, err := owner(t, at, upperHalf)
	if err != nil {
		t.Fatal(err)
	}
	for listen := 0; listen < 2; {
		if err := words.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query = 'LISTEN modbox_commits'").Scan(&listen); err != nil {
			t.Fatal(err)
		}
	}
	ws, _, err := lower.Workspaces.EnsureDefaults(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	heard := func(what string, committed <-chan struct{}) {
		t.Helper()
		select {
		case <-committed:
		case <-time.After(time.Minute):
			t.Fatalf("%s is not heard of", what)
		}
	}
	release := func() {
		t.Helper()
		if err := lower.Quotas.SetQuota(t.Context(), ws, quota.Limits{quota.LimitSandboxes: 3}); err != nil {
			t.Fatal(err)
		}
	}
	commits := func() { // notifications come in order: both servers have the notifications before these
		t.Helper()
		for i := range 10 {
			for writes, waits := range map[*store.Store]*store.Store{lower: upper, upper: lower} {
				committed := waits.Committed()
				if err := insertWord(t.Context(), writes, fmt.Sprint("word", i)); err != nil {
					t.Fatal(err)
				}
				heard("a commit", committed)
			}
		}
	}
	commits()
	for range 10 {
		released := upper.ReleasedElsewhere()
		release()
		heard("a release", released)
	}
	commits()
	own, none := lower.ReleasedElsewhere(), upper.ReleasedElsewhere()
	commits()
	select {
	case <-own:
		t.Error("a server hears of its own releases")
	case <-none:
		t.Error("a commit that releases nothing counts as a release")
	default:
	}
}
