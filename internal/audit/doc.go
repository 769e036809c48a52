// Package audit records who did what: a [Record] for each operation that changes or runs something,
// in an append-only log.
//
// # The chain
//
// Each record has a hash over the previous hash and the record's own bytes. So no record can be
// changed, removed, added or moved without changing all hashes after it. Retention removes the
// oldest records and stores the hash of the last removed record, the anchor. The hash of the newest
// record, the head, vouches for all records before it: somebody who stores a head elsewhere can
// tell later whether the log was rewritten. [Verify] checks rows from any source.
//
// # One place
//
// [Log.Handler] wraps the handler of every recorded route; it makes an [Entry], which travels in
// the request's context, and adds a record at the end, also for refused requests. The code below
// adds the facts that only it knows to the entry: the user, the object, the command.
//
// # Commands
//
// Records contain arguments up to [CommandMax] bytes, without secrets as far as these can be
// recognized: values of environment variables, and tokens, passwords and keys in the usual forms
// ([Redact]). They contain neither terminal input, stdin nor the content of files, and output only of workspaces that
// ask for it: its beginning, up to [OutputMax] bytes, without secrets, and bounded for each workspace in a day.
//
// # When records are written
//
// Before an operation does anything, the log stores an intent outside of the chain ([Entry.Begin],
// [Entry.Command]), with the facts known by then. The operation goes on only after the store has
// the intent, and, except for commands, after it has been synced to disk; if that fails, the
// operation is not done. At the end its record replaces the intent in the same transaction. The
// next server records the intents of a killed server as [Interrupted] ([Log.Recover]). So there is
// a record of each operation, and no operation without a record.
//
// A single writer adds records and intents in batches, as soon as a caller waits; callers that
// arrive meanwhile share the next transaction and the next sync. The answer to a request is delayed
// until its record is written, except for commands, whose intent has everything but the end. For a
// command that runs longer than [LongAfter], or whose output is streamed, the start is recorded
// also.
package audit
