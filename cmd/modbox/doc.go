// Command modbox is all of Modbox: the server ("modbox server") and the command
// line that talks to it. docs/cli.md describes it for users.
//
// Its files are commands over package client, or over internal/server, one file per noun.
package main
