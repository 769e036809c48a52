// Command modbox is all of Modbox: the server ("modbox server") and the command
// line that talks to it. docs/cli.md describes it for users.
//
// This package wires the others together and holds no behaviour of theirs:
// server.go makes the server's parts in order and ends them in reverse; the
// other files are commands over package client, one file per noun.
package main
