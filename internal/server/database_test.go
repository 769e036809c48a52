package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/sandbox"
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
