// Package database opens, migrates and copies the database, commits its writes, and has what all queries
// share: lists in pages, and the stored form of times. The packages that use it have the SQL of the records.
//
// The database is SQLite, in one file and in Go; or PostgreSQL. The queries are the same for both: placeholders are
// $1, truth is 0 or 1, text is compared byte by byte. [engine] has what differs.
//
// # Transactions
//
// [DB.Write] and [DB.Note] run a function in a transaction. A function that other nouns use in their
// transactions takes that [sql.Tx] as a parameter; no function keeps one, and none begins a transaction
// within another. Only functions of the packages that have the SQL run in transactions: these packages take no
// functions of their callers (internal/archtest has a test of that), and use keys before and after.
//
// # Concurrency and durability
//
// All methods may be called concurrently. Writes go through one connection, one after the
// other; on PostgreSQL a lock makes the transactions of other processes wait, as the lock of SQLite's file does. Writes that arrive while the disk is busy share the next transaction and its wait
// for the disk. Each write sees the earlier writes, and its failure does not affect the
// others. Reads use a pool of connections of their own and see the last committed state.
//
// A write does not stop halfway when its context ends: if the context has ended before the
// write begins, the write is refused; after that it has a deadline of its own. So a caller
// that disconnects never leaves an unknown result.
//
// Each connection keeps its prepared statements, so that a statement is compiled once. The text of a
// statement therefore has no values in it; they are parameters.
//
// The function of a write may run on the goroutine of another write's caller, and more than once, when the first
// transaction was rolled back. It must wait for nothing but the database and use nothing but its transaction.
//
// # Lost connections
//
// Reads and writes wait for a PostgreSQL that restarts, and run again on a new connection. A transaction whose connection
// is lost at its commit leaves a mark when it is committed, so it runs again only if it is not. Once the database has been away
// for as long as they wait, they fail at once. A database that lacks what this process has recorded counts as away. The
// connection that writes has the locks of the ranges of shards that its server owns; without them there is no transaction. A server that finds that another has owned
// one of its ranges never writes again ([ErrTaken]).
//
// When a method that writes returns nil, its change is on the disk and survives a loss of
// power. A method that uses [DB.Note] promises less: its change survives the end of the server's
// process, but a loss of power may undo it.
package database
