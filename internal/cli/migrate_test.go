package cli

import (
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/cli/base"
	"github.com/modbox/modbox/internal/store"
	"github.com/modbox/modbox/internal/store/storetest"
)

func TestMigrateToPostgres(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("the suite postgres runs this test, with a server in MODBOX_TEST_POSTGRES")
	}
	dir, st := stateDir(t)
	if _, _, err := st.Workspaces.EnsureDefaults(t.Context()); err != nil {
		t.Fatal(err)
	}
	own, err := st.Installation(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := storetest.Empty(t)
	migrate := func(args ...string) result {
		t.Helper()
		return invoke(t, nil, "", append([]string{"migrate", "sqlite-to-postgres", "--state-dir", dir}, args...)...)
	}
	if r := migrate(); r.code != base.ExitUsage || !strings.Contains(r.stderr, "database.url") {
		t.Errorf("without a URL = %+v", r)
	}
	unlock := runServer(t, dir, "127.0.0.1:1")
	if r := migrate("--database-url", at.Postgres.URL); r.code != base.ExitFailure || r.stdout != "" {
		t.Errorf("beside a server = %+v, want it refused", r)
	}
	unlock()
	if r := migrate("--database-url", at.Postgres.URL); r.code != 0 || !strings.Contains(r.stdout, "were copied; the next server uses PostgreSQL") {
		t.Fatalf("migrate = %+v", r)
	}
	to, err := store.OpenExistingAt(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	if got, err := to.Installation(t.Context()); err != nil || got != own {
		t.Errorf("PostgreSQL has the installation %+v, %v, want %+v", got, err, own)
	}
	if r := migrate("--database-url", at.Postgres.URL); r.code != base.ExitFailure || !strings.Contains(r.stderr, "start the server") {
		t.Errorf("a second time = %+v, want advice", r)
	}
	if r := migrate("--database-url", storetest.Empty(t).Postgres.URL, "--json"); r.code != 0 || !strings.Contains(r.stdout, `"workspaces": 1`) {
		t.Errorf("with --json = %+v, want the rows of tables", r)
	}
}
