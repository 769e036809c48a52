// Package snapshot has the commands about snapshots, and reads the build files from which
// snapshots are built.
package snapshot
