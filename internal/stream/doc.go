// Package stream stores streams of bytes in files: the output of commands, and their input. A
// stream has a single writer, ends once, and can be read by any number of readers from any offset,
// while it grows and afterwards.
//
// Everything that a [Writer] accepted survives the process being killed at any moment: each write
// is an append to a file. After a restart [Store.Writer] continues the stream and returns its
// length.
//
// A stream stores at most the number of bytes given when it was created. Bytes beyond that, or
// after the disk was full, are counted and dropped, so that [Writer.Offset] is always the number of
// bytes written to it.
//
// The file of a stream begins with a header of fixed size: a magic number, the maximum number of
// bytes, how many were dropped, and when it ended. A second file beside it has the times at which
// bytes arrived, for reading with timestamps; it may be missing or short.
package stream
