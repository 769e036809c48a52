// Package audit records who did what: one [Record] for each operation that
// changes something or runs something, in a log to which records are only added.
//
// # The chain
//
// Each record has a hash over the hash before and the record's own bytes, so none
// can be changed, removed, added or moved without all hashes after it changing.
// Retention cuts records off at the beginning and keeps the hash of the last one
// cut, the anchor. The hash of the newest record, the head, vouches for all before
// it: who keeps a head elsewhere can tell whether the log was made anew since.
// [Verify] checks rows, wherever they come from.
//
// # One place
//
// [Log.Handler] stands before the handler of every route that is recorded; it
// makes an [Entry], which travels in the request's context, and adds one record at
// the end, also when the request was refused. What is below notes on the entry
// what only it knows: who asks, which object it is, which command runs.
//
// # What is kept of commands
//
// Arguments up to [CommandMax] bytes, without secrets as far as they can be told:
// values of environment variables, tokens, passwords and keys in the usual forms
// ([Redact]). What is typed into a terminal, stdin, output and the content of files
// are not in the log.
//
// # When it is written
//
// Before an operation does anything an intent is put down ([Entry.Begin],
// [Entry.Command]): what is known of it by then, outside of the chain. It is in the
// store before the operation goes on, and on the disk unless that is a command; when
// that fails nothing is done. At the end
// its record takes the intent's place, in one transaction. Intents that a killed
// server leaves are recorded as [Interrupted] by the next one ([Log.Recover]). So
// there is one record of each operation, and nothing is done without.
//
// One writer adds records and intents in batches, as soon as somebody waits for one:
// those who come meanwhile share one transaction and one wait for the disk. The
// answer to a request is held back until its record is written, too, except for
// commands, whose intent says all but how they ended. A command that runs longer
// than [LongAfter], or whose output is streamed, is recorded as started, too.
package audit
