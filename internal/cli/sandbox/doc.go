// Package sandbox has the commands about sandboxes: creating, using, pausing and ending them,
// commands and files in them, and their network.
package sandbox
