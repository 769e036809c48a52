package store

import (
	"context"

	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/accounts"
	"github.com/modbox/modbox/internal/store/database"
)

// Store is an open database, with its records by noun.
type Store struct {
	*database.DB

	Audit       *Audit
	Catalogue   *Catalogue
	Checkpoints *Checkpoints
	Executions  *Executions
	Quotas      *Quotas
	Registries  *Registries
	Sandboxes   *Sandboxes
	Secrets     *Secrets
	Snapshots   *Snapshots
	Usage       *Usage

	Invitations *accounts.Invitations
	Members     *accounts.Members
	Sessions    *accounts.Sessions
	Tokens      *accounts.Tokens
	Users       *accounts.Users
	Workspaces  *accounts.Workspaces
}

// Option is a setting of a [Store].
type Option func(*sealer)

// WithKeys sets the keys for the variables of sandboxes and snapshots. Without keys,
// variables cannot be written, and reads return no variables.
func WithKeys(k Keys) Option { return func(s *sealer) { s.keys = k } }

// Location is the place of a database.
type Location struct {
	Path     string            // of the file of SQLite
	Postgres database.Postgres // used instead if it has a URL
}

// Open opens the database file at path as [database.Open] does.
func Open(ctx context.Context, path string, options ...Option) (*Store, error) {
	return in(options)(database.Open(ctx, path))
}

// OpenAt opens the database at a location as [database.Open] or [database.OpenPostgres] does.
func OpenAt(ctx context.Context, l Location, options ...Option) (*Store, error) {
	if l.Postgres.URL != "" {
		return in(options)(database.OpenPostgres(ctx, l.Postgres))
	}
	return Open(ctx, l.Path, options...)
}

// OpenExisting opens the database file of a server that may be running as [database.OpenExisting] does.
func OpenExisting(ctx context.Context, path string, options ...Option) (*Store, error) {
	return in(options)(database.OpenExisting(ctx, path))
}

// OpenExistingAt opens the database of a server that may be running as [database.OpenExisting] or
// [database.OpenExistingPostgres] does.
func OpenExistingAt(ctx context.Context, l Location, options ...Option) (*Store, error) {
	if l.Postgres.URL != "" {
		return in(options)(database.OpenExistingPostgres(ctx, l.Postgres))
	}
	return OpenExisting(ctx, l.Path, options...)
}

// in returns the records in a database that was opened.
func in(options []Option) func(*database.DB, error) (*Store, error) {
	return func(db *database.DB, err error) (*Store, error) {
		if err != nil {
			return nil, err
		}
		var s sealer
		for _, o := range options {
			o(&s)
		}
		workspaces := accounts.NewWorkspaces(db)
		return &Store{
			DB: db, Audit: &Audit{db}, Catalogue: &Catalogue{db}, Checkpoints: &Checkpoints{db}, Executions: &Executions{db},
			Quotas: &Quotas{db, workspaces}, Registries: &Registries{db}, Sandboxes: &Sandboxes{db, s, sandbox.Own(sandbox.AllRanges)}, Secrets: &Secrets{db, s},
			Snapshots: &Snapshots{db, s}, Usage: &Usage{db},
			Invitations: accounts.NewInvitations(db), Members: accounts.NewMembers(db), Sessions: accounts.NewSessions(db),
			Tokens: accounts.NewTokens(db), Users: accounts.NewUsers(db), Workspaces: workspaces,
		}, nil
	}
}
