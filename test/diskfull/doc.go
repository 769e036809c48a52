// Package diskfull proves that a full disk does not end the service: on a small file system,
// sandboxes and other programs take all space, and the real server goes on answering, starts again,
// and needs no repair.
package diskfull
