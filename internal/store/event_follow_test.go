package store_test

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store"
	"github.com/modbox/modbox/internal/store/database"
	"github.com/modbox/modbox/internal/store/storetest"
)

// TestFollowOnPostgres checks that a server learns of the active server from its announcements, also after lost notifications, sessions and databases.
func TestFollowOnPostgres(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("the suite postgres runs this test, with a server in MODBOX_TEST_POSTGRES")
	}
	cluster := storetest.StartCluster(t)
	at := on(time.Minute, cluster)
	reports := make(chan []database.Active, 16)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		database.Follow(ctx, at.Postgres, func(list []database.Active) { reports <- list }, slog.New(slog.DiscardHandler))
	}()
	want := func(when string, want ...database.Active) {
		t.Helper()
		for {
			select {
			case got := <-reports:
				if slices.Equal(got, want) {
					return
				}
				t.Logf("%s: %+v is reported", when, got) // after a new connection the same may be said again
			case <-time.After(2 * time.Minute):
				t.Fatalf("%s: %+v is not reported", when, want)
			}
		}
	}
	want("before there are tables")
	lower, err := owner(t, at, sandbox.AllRanges)
	if err != nil {
		t.Fatal(err)
	}
	if err := lower.GiveUp(t.Context(), upperHalf); err != nil {
		t.Fatal(err)
	}
	upper, err := owner(t, at, upperHalf)
	if err != nil {
		t.Fatal(err)
	}
	server := func(r sandbox.Ranges, address string, epoch int64) database.Active {
		return database.Active{Ranges: r, Address: address, Epoch: epoch}
	}
	announce := func(s *store.Store, address string, epoch int64) {
		t.Helper()
		if err := s.Announce(t.Context(), server(s.Ranges(), address, epoch)); err != nil {
			t.Fatal(err)
		}
	}
	db := direct(t, cluster)
	exec := func(query string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	announce(upper, "a:1", 7)
	want("after an announcement", server(upperHalf, "a:1", 7))
	announce(lower, "a:1", 8)
	want("with two servers at an address", server(lowerHalf, "a:1", 8), server(upperHalf, "a:1", 7))
	announce(lower, "", 8)
	want("after a server has withdrawn", server(upperHalf, "a:1", 7))
	if err := upper.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err = owner(t, at, sandbox.RangesFrom(8, 11)); err != nil {
		t.Fatal(err)
	}
	want("after another server has a part of the ranges", server(sandbox.RangesFrom(12, 15), "a:1", 7))
	announce(lower, "", 8)
	exec("UPDATE shard_ranges SET address = 'b:1', server_epoch = 8 WHERE number < 8; UPDATE shard_ranges SET address = '' WHERE number >= 8")
	want("without a notification", server(lowerHalf, "b:1", 8))
	exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%server_address%' AND pid <> pg_backend_pid()")
	announce(lower, "c:1", 9)
	want("after its session was ended", server(lowerHalf, "c:1", 9))
	cluster.Stop("immediate")
	cluster.Start()
	announce(lower, "d:1", 10)
	want("after the database was away", server(lowerHalf, "d:1", 10))
	exec("ALTER TABLE shard_ranges DROP COLUMN address, DROP COLUMN server_epoch; UPDATE installation SET server_address = 'e:1', server_epoch = 11")
	want("from a server without the columns", server(sandbox.AllRanges, "e:1", 11))
	exec("DROP TABLE shard_ranges; UPDATE installation SET server_epoch = 12")
	want("from a server without the table", server(sandbox.AllRanges, "e:1", 12))
	cancel()
	<-ended
}
