// Package store keeps the records that must outlive the server: workspaces, users, tokens,
// sandboxes, their events, and idempotency keys. It enforces the rules that need a
// transaction (one live sandbox per name, compare-and-set of states, a row and its event
// together) and no others; package lifecycle has the rules of a sandbox's life.
//
// Each noun has a type with its queries, a field of [Store]. A transaction that spans nouns is a method of the
// noun that it changes, which passes the transaction to functions of the others: a create
// checks the quota of the workspace and inserts the sandbox and its event in one transaction.
//
// The SQL is written so that PostgreSQL also understands it: parameters are $1, $2, …; types and functions that
// only SQLite has occur in migrations/sqlite alone.
//
// Package database has the rules of concurrency and durability. TouchToken, NoteActivity, NoteUsage, and
// ChangeAudit without Durable are notes: a loss of power may undo their changes.
//
// # Secrets
//
// Environment variables of sandboxes and snapshots are encrypted with [Keys]. Tokens are
// stored as hashes. Only the owner of the database file can read it.
package store
