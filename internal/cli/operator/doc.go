// Package operator has the commands for the one who runs a server: the server itself, and
// commands that work beside it on its state directory.
package operator
