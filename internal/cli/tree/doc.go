// Package tree packs a directory as a tar stream, and unpacks such a stream without leaving
// the directory.
package tree
