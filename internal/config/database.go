package config

import (
	"net/url"
	"time"
)

// Database configures the database; docs/operate/postgresql.md describes PostgreSQL.
type Database struct {
	URL              string   `yaml:"url" doc:"PostgreSQL database of the server: postgres://USER@HOST/DATABASE?sslmode=verify-full (docs/operate/postgresql.md). Other users of the machine can read flags, so put a password into database.password_file. Empty: SQLite, a file in state_dir."`
	PasswordFile     string   `yaml:"password_file" doc:"File with the password for database.url. The variable MODBOX_DATABASE_PASSWORD can hold the password instead."`
	MaxConnections   int      `yaml:"max_connections" doc:"Maximum number of connections to PostgreSQL; one is for writes."`
	ConnectTimeout   Duration `yaml:"connect_timeout" doc:"Time limit of an attempt to connect to PostgreSQL. The server attempts it again for half a minute."`
	StatementTimeout Duration `yaml:"statement_timeout" doc:"Time limit of a statement of PostgreSQL."`
}

func (d *Database) validate(bad func(name, format string, args ...any)) {
	u, err := url.Parse(d.URL)
	switch { // without the URL, which may have a password
	case err != nil || d.URL != "" && u.Scheme != "postgres" && u.Scheme != "postgresql":
		bad("database.url", "it is not a URL such as postgres://modbox@db.example.com/modbox")
	case d.URL != "" && len(u.Path) < 2:
		bad("database.url", "it names no database: postgres://USER@HOST/DATABASE")
	}
	within(bad, "database.max_connections", d.MaxConnections, 2, 1000)
	within(bad, "database.connect_timeout", d.ConnectTimeout, Duration(time.Second), Duration(time.Minute))
	within(bad, "database.statement_timeout", d.StatementTimeout, Duration(time.Second), Duration(time.Hour))
}
