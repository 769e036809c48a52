package store_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

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
	reports := make(chan database.Active, 16)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		database.Follow(ctx, at.Postgres, func(a database.Active) { reports <- a }, slog.New(slog.DiscardHandler))
	}()
	want := func(when string, want database.Active) {
		t.Helper()
		for {
			select {
			case got := <-reports:
				if got == want {
					return
				}
				t.Logf("%s: %+v is reported", when, got) // after a new connection the same may be said again
			case <-time.After(2 * time.Minute):
				t.Fatalf("%s: %+v is not reported", when, want)
			}
		}
	}
	want("before there are tables", database.Active{})
	s, err := store.OpenAt(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	announce := func(a database.Active) {
		t.Helper()
		if err := s.Announce(t.Context(), a); err != nil {
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
	announce(database.Active{Address: "a:1", Epoch: 7})
	want("after an announcement", database.Active{Address: "a:1", Epoch: 7})
	announce(database.Active{Epoch: 7})
	want("after the server has withdrawn", database.Active{Epoch: 7})
	exec("UPDATE installation SET server_address = 'b:1', server_epoch = 8")
	want("without a notification", database.Active{Address: "b:1", Epoch: 8})
	exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%server_address%' AND pid <> pg_backend_pid()")
	announce(database.Active{Address: "c:1", Epoch: 9})
	want("after its session was ended", database.Active{Address: "c:1", Epoch: 9})
	cluster.Stop("immediate")
	cluster.Start()
	announce(database.Active{Address: "d:1", Epoch: 10})
	want("after the database was away", database.Active{Address: "d:1", Epoch: 10})
	cancel()
	<-ended
}
