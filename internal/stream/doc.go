// Package stream keeps streams of bytes in files: what commands write, and what
// they are to read. A stream is appended to by one writer, ends once, and is
// read by anybody from any byte on, while it grows and afterwards.
//
// Everything a [Writer] took is there after the process was killed at any
// moment: each write is one append to a file. After a restart the stream is
// written on with [Store.Writer], which says how far it had come.
//
// A stream keeps at most as many bytes as was said when it was made. What comes
// after that, or after the disk was full once, is counted and not kept, so that
// [Writer.Offset] always is the number of bytes that were given to it.
//
// The file of a stream begins with a header of fixed size: a magic number, the
// most bytes it keeps, how many were dropped, and when it ended. A second file
// beside it holds when bytes came, for reading with timestamps; it may be
// missing or short.
package stream
