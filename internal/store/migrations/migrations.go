// Package migrations has the schema of the database, as migrations from each version to the next.
package migrations

import (
	"embed"
	"io/fs"
)

//go:embed sqlite/*.sql
var files embed.FS

// SQLite returns the migrations of SQLite databases.
func SQLite() (fs.FS, error) { return fs.Sub(files, "sqlite") }
