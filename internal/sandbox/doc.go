// Package sandbox is the vocabulary of Modbox: identifiers, specifications,
// states, causes, events, errors and their codes. It does no I/O and imports
// nothing else of this repository, so every other package may import it.
//
// A [Sandbox] is one isolated Linux with its own URL, limits and deadline. It
// belongs to a workspace, is made from an [Image], and walks through the states
// listed at [State]. How it ended is kept as a [Cause] after it is gone.
package sandbox
