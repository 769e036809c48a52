// Package operator has the commands for the operator of a server: the server itself, and commands
// that work beside it on its state directory.
package operator
