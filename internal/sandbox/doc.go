// Package sandbox is the vocabulary of sandboxes: identifiers, states, causes, events, executions,
// snapshots, errors and their codes. It does no I/O and imports nothing else of this repository, so
// every other package may import it. The vocabulary of other nouns is in their packages, such as
// account, quota and catalogue.
//
// A [Sandbox] is an isolated Linux with its own URL, limits and deadline. It belongs to a
// workspace, is made from an image or a [Snapshot], and has the states listed at [State]. A [Cause]
// records why it ended.
package sandbox
