// Package cli is the command line of Modbox: the tree of commands, the exit codes, and what
// an error looks like. docs/cli.md describes it for users.
//
// The commands are in packages by noun: sandbox, image, snapshot and account are commands over
// package client; operator has the server itself and the commands that work beside it on its
// directories. Each is a function that returns a command for an environment of package base.
package cli
