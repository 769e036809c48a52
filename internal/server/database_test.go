package server

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/installation"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/statedir"
	"github.com/modbox/modbox/internal/store"
	"github.com/modbox/modbox/internal/store/storetest"
)

func TestDatabasePassword(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("of the file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := config.Config{Database: config.Database{URL: "postgres://u@h/d", PasswordFile: file}}
	if l, err := storeLocation(cfg); err != nil || l.Postgres.Password != "of the file" {
		t.Errorf("password %q, %v, want the file's", l.Postgres.Password, err)
	}
	t.Setenv(databasePasswordVariable, "of the variable")
	if l, err := storeLocation(cfg); err != nil || l.Postgres.Password != "of the variable" {
		t.Errorf("password %q, %v, want the variable's", l.Postgres.Password, err)
	}
	if err := NoFileBackup(cfg); sandbox.CodeOf(err) != sandbox.Unsupported || !strings.Contains(err.Error(), "pg_dump") {
		t.Errorf("NoFileBackup: %v, want advice", err)
	}
	for _, url := range []string{"mysql://u:hunter2@h/d", "postgres://u:hunter2@h:port/d", "postgres://u:hunter2@h"} {
		_, err := config.Load(config.Source{Environ: []string{"HOME=/home", "MODBOX_DATABASE_URL=" + url}})
		if err == nil || !strings.Contains(err.Error(), "database.url") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want an error of the setting without the password", url, err)
		}
	}
}

// A command without database.url neither reads nor writes the SQLite database from before a server moved to another.
func TestCommandsUseTheDatabaseOfTheServer(t *testing.T) {
	cfg := config.Config{StateDir: t.TempDir()}
	inUse := func() error {
		_, err := DigestsInUse(cfg)(t.Context())
		return err
	}
	path := filepath.Join(cfg.StateDir, statedir.DatabaseFile)
	st, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	own, err := st.Advance(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	mark := func(id installation.Identity) {
		t.Helper()
		markDirectory(t, cfg.StateDir, id)
	}
	mark(own)
	if err := inUse(); err != nil {
		t.Errorf("the server's own database: %v", err)
	}
	moved, another := own, own
	moved.Generation++ // by the server, in PostgreSQL
	another.ID = strings.Repeat("0", 32)
	for _, id := range []installation.Identity{moved, another} {
		mark(id)
		if st, err := OpenExistingStore(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "database.url") {
			t.Errorf("with the mark %v: %v, %v, want advice about database.url", id, st, err)
		}
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(path + suffix); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	if err := inUse(); err == nil || sandbox.CodeOf(err) == sandbox.NotFound || !strings.Contains(err.Error(), "database.url") {
		t.Errorf("without the SQLite database: %v, want advice about database.url", err)
	}
}

// markDirectory makes dir a state directory of an installation.
func markDirectory(t *testing.T, dir string, id installation.Identity) {
	t.Helper()
	marks, err := installation.Write(installation.Mark{Identity: id, StateDir: dir}, sandbox.AllRanges, dir)
	if err == nil {
		err = marks.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A command with the URL of a database that the server does not use neither reads nor writes it: images of the server
// would look unused.
func TestCommandsRefuseAnotherPostgres(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("the suite postgres runs this test, with a server in MODBOX_TEST_POSTGRES")
	}
	p := storetest.Empty(t).Postgres
	cfg := config.Config{StateDir: t.TempDir(), RunDir: t.TempDir(), Database: config.Database{
		URL: p.URL, MaxConnections: p.MaxConnections, ConnectTimeout: config.Duration(p.ConnectTimeout), StatementTimeout: config.Duration(p.StatementTimeout),
	}}
	refused := func(when string) {
		t.Helper()
		uses := map[string]error{}
		_, uses["images in use"] = DigestsInUse(cfg)(t.Context())
		_, uses["images released"] = digestsReleased(cfg)(t.Context())
		_, uses["images"] = localRows{cfg}.Images(t.Context())
		_, uses["any use"] = OpenExistingStore(t.Context(), cfg)
		for use, err := range uses {
			if sandbox.CodeOf(err) != sandbox.Conflict || !strings.Contains(err.Error(), "database.url") || !strings.Contains(err.Error(), "--accept-database") || strings.Contains(err.Error(), p.URL) {
				t.Errorf("%s: %s: %v, want code conflict and advice", when, use, err)
			}
		}
		if w, err := DatabaseWarnings(t.Context(), cfg); err != nil {
			t.Errorf("%s: doctor: %q, %v, want that it reaches the database", when, w, err)
		}
	}
	if digests, err := DigestsInUse(cfg)(t.Context()); err != nil || len(digests) > 0 {
		t.Errorf("before the first start: %v, %v, want no images", digests, err)
	}
	own := installation.Identity{ID: strings.Repeat("0", 32), Generation: 1}
	markDirectory(t, cfg.StateDir, own)
	refused("empty")
	if err := fitsInstallation(t.Context(), cfg); err != nil {
		t.Errorf("an empty database before the start: %v", err)
	}
	st, err := OpenStore(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	refused("another installation")
	if err := fitsInstallation(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "is of installation") {
		t.Errorf("another installation before the start: %v, want it refused", err)
	}
	if own, err = st.Advance(t.Context()); err != nil {
		t.Fatal(err)
	}
	newer := own
	newer.Generation++
	markDirectory(t, cfg.StateDir, newer)
	refused("an older database")
	markDirectory(t, cfg.StateDir, own)
	if digests, err := DigestsInUse(cfg)(t.Context()); err != nil || len(digests) > 0 {
		t.Errorf("the server's own: %v, %v, want no images", digests, err)
	}
}

// After a failover, a start and commands beside the server use the primary that has everything, although a former primary that
// runs again is named first. It is not even migrated.
func TestStartAfterAFailover(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("the suite postgres runs this test")
	}
	former := storetest.StartCluster(t)
	it := &installationTest{T: t, cfg: config.Config{StateDir: t.TempDir(), RunDir: t.TempDir()}}
	on := func(hosts ...string) {
		it.cfg.Database = config.Database{
			URL:            "postgres://modbox@/postgres?host=" + strings.Join(hosts, ","),
			MaxConnections: 3, ConnectTimeout: config.Duration(30 * time.Second), StatementTimeout: config.Duration(30 * time.Second),
		}
	}
	on(former.Dir)
	it.use(false)
	primary := former.Standby()
	primary.Promote()
	on(primary.Dir)
	it.use(false)
	db, err := sql.Open("pgx", former.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if _, err := db.ExecContext(t.Context(), "INSERT INTO goose_db_version (version_id, is_applied) VALUES (1000, true)"); err != nil { // a start with it fails
		t.Fatal(err)
	}

	on(former.Dir, primary.Dir)
	it.use(false)
	st, err := OpenExistingStore(t.Context(), it.cfg)
	if err != nil {
		t.Fatalf("a command: %v", err)
	}
	defer st.Close()

	on(former.Dir)
	it.refused("former primary")
	if _, err := OpenExistingStore(t.Context(), it.cfg); sandbox.CodeOf(err) != sandbox.Conflict || !strings.Contains(err.Error(), "--accept-database") {
		t.Errorf("a command with the former primary: %v, want code conflict and advice", err)
	}
	if _, err := db.ExecContext(t.Context(), "DELETE FROM goose_db_version WHERE version_id = 1000"); err != nil {
		t.Fatal(err)
	}
	it.use(true)
	on(primary.Dir, former.Dir)
	it.use(false) // with the database that was accepted
}
