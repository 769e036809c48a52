package testserver

import (
	"database/sql"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/modbox/modbox/internal/statedir"
	"github.com/modbox/modbox/internal/store/storetest"
)

// makeDatabase gives a state directory without a database an empty one of the newest version: the migrations take a third of
// the CPU time of a server's start. Servers that are not started by this package, for example by scripts/with-server.sh,
// migrate their databases. It does nothing if the database is PostgreSQL, or if the program under test is not the program
// built here, whose newest version may be another.
func makeDatabase(t testing.TB, stateDir string) {
	t.Helper()
	path := filepath.Join(stateDir, statedir.DatabaseFile)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) || os.Getenv("MODBOX_DATABASE_URL") != "" || Binary(t) != filepath.Join(root(t), "bin", "modbox") {
		return
	}
	storetest.Create(t, path)
	// All databases of storetest have the same installation id; a server's is random.
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?_pragma=synchronous(OFF)&_pragma=secure_delete(1)")
	if err == nil {
		_, err = db.ExecContext(t.Context(), "UPDATE installation SET id = lower(hex(randomblob(16)))")
		err = errors.Join(err, db.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}
