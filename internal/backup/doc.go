// Package backup writes the state of a running server to a single file, and restores a state
// directory from such a file.
//
// # Content of a backup
//
// A backup is a tar, compressed by zstd, of the state directory: a consistent copy of the database,
// the keys that its secrets are encrypted with, the first token, saved sandboxes with the agents
// that they need, output of executions, and images. Its last entry is the manifest, which has the
// digest of every other entry: a file without a manifest, or with other content, is not a complete
// backup.
//
// Files are hard-linked into a directory of the backup first, both before and after the database is
// copied, so that files which the copy refers to are not removed meanwhile.
//
// # Restoring
//
// Everything is unpacked into and verified in a new directory, and then moved to its place in steps
// recorded in a plan on the disk: when these are interrupted, [Finish], which a server calls before
// it reads anything, continues them. The previous state is set aside and never deleted.
package backup
