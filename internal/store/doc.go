// Package store keeps the records that must outlive the server: workspaces, users, tokens,
// sandboxes, their events, and idempotency keys. It enforces the rules that need a
// transaction (one live sandbox per name, compare-and-set of states, a row and its event
// together) and no others; package lifecycle has the rules of a sandbox's life.
//
// The database is SQLite, in one file and in Go. The SQL is written so that
// PostgreSQL also understands it: parameters are $1, $2, …; types and functions that only
// SQLite has occur in migrations/sqlite alone.
//
// # Concurrency and durability
//
// All methods may be called concurrently. Writes go through one connection, one after the
// other. Writes that arrive while the disk is busy share the next transaction and its wait
// for the disk. Each write sees the earlier writes, and its failure does not affect the
// others. Reads use a pool of connections of their own and see the last committed state.
//
// A write does not stop halfway when its context ends: if the context has ended before the
// write begins, the write is refused; after that it has a deadline of its own. So a caller
// that disconnects never leaves an unknown result.
//
// The function of a write may run on the goroutine of another write's caller. It must wait
// for nothing but the database and use nothing but its transaction.
//
// When a method that writes returns nil, its change is on the disk and survives a loss of
// power. TouchToken, NoteActivity, NoteUsage, and ChangeAudit without Durable promise less:
// their changes survive the end of the server's process, but a loss of power may undo them.
//
// # Secrets
//
// Environment variables of sandboxes and snapshots are encrypted with [Keys]. Tokens are
// stored as hashes. Only the owner of the database file can read it.
package store
