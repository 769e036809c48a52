package apitest

import (
	"path/filepath"
	"testing"

	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/secret"
	"github.com/modbox/modbox/internal/store"
	"github.com/modbox/modbox/internal/store/storetest"
)

// part is the part of the shards that a server has, with the files that it shares with the servers of the other parts.
type part struct {
	dir    string         // of its files; "" for a new one
	ranges sandbox.Ranges // 0 for all
	token  string         // of the first server
}

// NewParts starts n servers that work at the same time on a PostgreSQL database and directory, each on a part of the shards and with boxes of
// its own; the first is the primary. It skips the test without PostgreSQL.
func NewParts(t testing.TB, n int) []*Server {
	t.Helper()
	if !storetest.Postgres() {
		t.Skip("the suite postgres runs this test, with a server in MODBOX_TEST_POSTGRES")
	}
	p := part{dir: t.TempDir()}
	var list []*Server
	for _, p.ranges = range sandbox.Parts(n) {
		s := newServer(t, options{part: p})
		p.token = s.Token
		list = append(list, s)
	}
	return list
}

func (p *part) openStore(t testing.TB, keys *secret.Keys) *store.Store {
	t.Helper()
	path := filepath.Join(p.dir, "modbox.db")
	if p.ranges == 0 {
		return storetest.Open(t, path, store.WithKeys(keys))
	}
	at := storetest.At(t, path)
	at.Postgres.Ranges = p.ranges
	s, err := store.OpenAt(t.Context(), at, store.WithKeys(keys))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
