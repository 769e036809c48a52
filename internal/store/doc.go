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
// take turns; those that come while the disk is busy share the next transaction, and
// with it the wait for the disk. Each sees the ones before it, and fails alone. Reads
// have a pool of their own and see the last committed state.
//
// A write is not given up halfway when its context ends: a context that has
// ended before is refused, after that the write has its own deadline, so that a
// caller who went away never leaves an unknown result behind.
//
// The function of a write may run on the goroutine of another write's caller. It must
// not wait for anything but the database, and use nothing but its transaction.
//
// When a method that writes has returned nil, what it wrote is on the disk and survives
// a loss of power. TouchToken, NoteActivity, NoteUsage and ChangeAudit without Durable
// do not promise that: what they wrote survives the end of the server's process, but
// may be lost with the power of the machine.
//
// # Secrets
//
// Environment variables of sandboxes are stored as they are: the file is made
// readable by its owner alone. Tokens are stored as hashes.
package store
