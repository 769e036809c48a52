// Package index is the list of the images of a store: their names, owners, readers, users and files.
// An [Index] is data in memory. A [Table] keeps it on the disk, for several processes.
//
// # Rows and descriptors
//
// The index of a server is rows in its database: see [Rows]. Each image also has a descriptor, a
// small JSON file with the same record, in the directory of the images:
//
//	index.json          the version of this format
//	records/KEY.json    a descriptor for each record
//	records/generation  a file that every change replaces, so that other processes read again
//
// So a directory describes itself. Where there is no database, such as for a build before the first
// start of a server, the descriptors are the index. A change writes the descriptors first, then the
// rows in one transaction, and removes descriptors last. Where both exist, the rows count.
//
// [Open] makes the rows complete: it adds a row for a descriptor without a row, whichever program
// wrote it, and a descriptor for a row without a descriptor. So a new database, an older copy of the
// database, and a directory from elsewhere lose no image. It drops a row without a descriptor whose
// files are missing, also in the object store: an older database has such rows of images that were removed since.
//
// # The index before
//
// Versions 1 and 2 kept the index in index.json. As long as that file has one of these versions, it
// is the index, whatever descriptors and rows exist. [Open] with a database makes descriptors and
// rows of it, in this order, and then replaces index.json; the old file stays as index.v2.json. When
// this is interrupted, the next Open repeats it. Without a database the first change does the same.
package index
