// Package sandbox has the commands about sandboxes: making, using, pausing and ending them,
// commands and files in them, and their network.
package sandbox
