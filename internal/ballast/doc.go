// Package ballast keeps disk space in reserve: files that take space for nothing, and
// that are removed when a write that must succeed meets a full disk.
//
// The ballast is several files, so that it can be given up in portions: programs that
// still write take what becomes free as well, and a second attempt needs a second
// portion. Each file also keeps an inode in reserve.
package ballast
