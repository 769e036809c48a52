// Package code has the commands that run code in contexts: code, contexts and repl.
package code
