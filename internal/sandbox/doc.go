// Package sandbox is the vocabulary of sandboxes: identifiers, states, causes, events, executions,
// snapshots, errors and their codes. It does no I/O and imports nothing else of this repository,
// so every other package may import it. The words of other nouns are in their packages, such as
// account, quota and catalogue.
//
// A [Sandbox] is one isolated Linux with its own URL, limits and deadline. It
// belongs to a workspace, is made from an image or a [Snapshot], and walks through the states
// listed at [State]. How it ended is kept as a [Cause] after it is gone.
package sandbox
