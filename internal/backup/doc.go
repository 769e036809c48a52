// Package backup makes one file of the state of a server, while it runs, and makes a
// state directory of such a file.
//
// # What is in a backup
//
// A backup is a tar, compressed by zstd, of what the state directory holds: a copy of the
// database as it was at one moment, the keys that its secrets are encrypted with, the
// first token, saved sandboxes with the agents that they need, output of executions, and
// images. Its last entry is the manifest, which has the digest of every other entry: a
// file without it, or with anything else in it, is no whole backup.
//
// Files are linked into a directory of the backup first, before and after the database is
// copied, so that what the copy refers to is not removed meanwhile.
//
// # Restoring
//
// Everything is unpacked and verified beside what is there, and then takes its place in
// steps that a plan on the disk names: when these are cut short, [Finish], which a server
// calls before it reads anything, goes on with them. What was there before is set aside
// and never deleted.
package backup
