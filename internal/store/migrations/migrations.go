// Package migrations has the schema of the database, as migrations from each version to the next.
package migrations

import (
	"embed"
	"io/fs"
)

//go:embed sqlite/*.sql postgres/*.sql
var files embed.FS

// SQLite returns the migrations of SQLite databases.
func SQLite() (fs.FS, error) { return fs.Sub(files, "sqlite") }

// Postgres returns the migrations of PostgreSQL databases. The first makes what the migrations of SQLite up to its number
// make; each later number has a migration for both.
func Postgres() (fs.FS, error) { return fs.Sub(files, "postgres") }
