// Package store records what must outlive the server: workspaces, users, tokens,
// sandboxes, their events, and idempotency keys. It knows the rules that only a
// transaction can keep (one live sandbox per name, compare-and-set of states, a
// row and its event together) and no others; the rules of a sandbox's life are
// package lifecycle's.
//
// The database is SQLite, in one file and in Go. The SQL is written so that
// PostgreSQL understands it too: parameters are $1, $2, …; no type or function
// is SQLite's own outside migrations/sqlite.
//
// # Concurrency and durability
//
// All methods may be called concurrently. Writes go through one connection and
// take turns; reads have a pool of their own and see the last committed state.
// A write is not given up halfway when its context ends: a context that has
// ended before is refused, after that the write has its own deadline, so that a
// caller who went away never leaves an unknown result behind.
//
// A committed write survives the end of the server's process at any moment. It
// may be lost when the whole machine loses power within the moments after it;
// the database is consistent then, and as no sandbox outlives that either,
// recovery after the restart is the same.
//
// # Secrets
//
// Environment variables of sandboxes are stored as they are: the file is made
// readable by its owner alone. Tokens are stored as hashes.
package store
