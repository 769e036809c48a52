// Package diskfull proves that a full disk ends the service for nobody: on a small file
// system of its own, sandboxes and other programs take all space, and the real server
// goes on answering, starts again, and needs nobody to mend it.
package diskfull
