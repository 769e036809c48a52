package storetest

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the database/sql driver "pgx"

	"github.com/modbox/modbox/internal/store"
	"github.com/modbox/modbox/internal/store/database"
	"github.com/modbox/modbox/internal/store/migrations"
)

// postgresVariable is the environment variable with the URL of a PostgreSQL server for tests, of a user who may create
// databases. With it, the databases of this package are databases of that server; without it, files of SQLite.
const postgresVariable = "MODBOX_TEST_POSTGRES"

// Postgres reports whether the databases of this package are databases of a PostgreSQL server.
func Postgres() bool { return os.Getenv(postgresVariable) != "" }

// databases are the databases of this process on the PostgreSQL server.
var databases struct {
	mu     sync.Mutex
	byPath map[string]string // names of databases, by the paths that tests use; guarded by mu
	opened map[string]int    // how often Open opened the databases, by URL; guarded by mu
	made   int               // guarded by mu
}

// postgresTemplate returns the name of an empty database of the newest version, which all processes of the tests share.
var postgresTemplate = sync.OnceValues(func() (name string, err error) {
	db, err := sql.Open("pgx", os.Getenv(postgresVariable))
	if err != nil {
		return "", err
	}
	db.SetMaxOpenConns(1) // a session, with the lock until it ends
	defer func() { err = errors.Join(err, db.Close()) }()
	sum, err := sumOfMigrations()
	if err != nil {
		return "", err
	}
	name = "mbt_template_" + sum
	var exists bool
	if _, err := db.Exec("SELECT pg_advisory_lock(hashtext('mbt_template'))"); err != nil {
		return "", err
	}
	if err := db.QueryRow("SELECT EXISTS (SELECT 1 FROM pg_database WHERE datname = $1)", name).Scan(&exists); err != nil || exists {
		return name, err
	}
	begun := name + "_begun"
	for _, statement := range []string{"DROP DATABASE IF EXISTS " + begun + " WITH (FORCE)", "CREATE DATABASE " + begun} {
		if _, err := db.Exec(statement); err != nil {
			return "", err
		}
	}
	made, err := database.OpenPostgres(context.Background(), postgresAt(begun))
	if err != nil {
		return "", err
	}
	if err := made.Close(); err != nil {
		return "", err
	}
	_, err = db.Exec("ALTER DATABASE " + begun + " RENAME TO " + name)
	return name, err
})

// sumOfMigrations returns the start of a digest over the migrations, in hexadecimal.
func sumOfMigrations() (string, error) {
	files, err := migrations.Postgres()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	err = fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, path)
		_, _ = fmt.Fprintln(h, path, len(text)) // a hash returns no error
		_, _ = h.Write(text)
		return err
	})
	return hex.EncodeToString(h.Sum(nil)[:8]), err
}

func administrate(statement string) error {
	db, err := sql.Open("pgx", os.Getenv(postgresVariable))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	_, err = db.ExecContext(context.Background(), statement)
	return err
}

// postgresAt names a database of the server.
func postgresAt(name string) database.Postgres {
	u, err := url.Parse(os.Getenv(postgresVariable))
	if err != nil {
		panic(err)
	}
	u.Path = "/" + name
	return database.Postgres{URL: u.String(), MaxConnections: 6, ConnectTimeout: 5 * time.Second, StatementTimeout: 20 * time.Second}
}

// At returns the location of the database that a test knows by a path. On PostgreSQL it makes an empty one of the newest
// version, unless it exists, and drops it when the test ends.
func At(t testing.TB, path string) store.Location {
	t.Helper()
	if !Postgres() {
		return store.Location{Path: path}
	}
	template, err := postgresTemplate()
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Clean(path)
	databases.mu.Lock()
	defer databases.mu.Unlock()
	name, ok := databases.byPath[path]
	if !ok {
		databases.made++
		name = fmt.Sprintf("mbt_%d_%d", os.Getpid(), databases.made)
		if err := administrate("CREATE DATABASE " + name + " TEMPLATE " + template); err != nil {
			t.Fatal(err)
		}
		if databases.byPath == nil {
			databases.byPath = map[string]string{}
		}
		databases.byPath[path] = name
		t.Cleanup(func() {
			databases.mu.Lock()
			defer databases.mu.Unlock()
			delete(databases.byPath, path)
			if err := administrate("DROP DATABASE " + name + " WITH (FORCE)"); err != nil {
				t.Error(err)
			}
		})
	}
	return store.Location{Path: path, Postgres: postgresAt(name)}
}

// Empty returns the location of a new database without tables on the PostgreSQL server, which is dropped when the test ends.
func Empty(t testing.TB) store.Location {
	t.Helper()
	databases.mu.Lock()
	databases.made++
	name := fmt.Sprintf("mbt_%d_%d", os.Getpid(), databases.made)
	databases.mu.Unlock()
	if err := administrate("CREATE DATABASE " + name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := administrate("DROP DATABASE " + name + " WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	})
	return store.Location{Postgres: postgresAt(name)}
}

// opened adds n to the number of stores that Open has opened at a location, and returns it.
func opened(at store.Location, n int) int {
	databases.mu.Lock()
	defer databases.mu.Unlock()
	if databases.opened == nil {
		databases.opened = map[string]int{}
	}
	databases.opened[at.Postgres.URL] += n
	return databases.opened[at.Postgres.URL]
}

// Raw returns the database that a test knows by a path, for statements of the test.
func Raw(t testing.TB, path string) *sql.DB {
	t.Helper()
	driver, name := "sqlite", path+"?_pragma=busy_timeout(5000)"
	if Postgres() {
		driver, name = "pgx", At(t, path).Postgres.URL
	}
	db, err := sql.Open(driver, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}
