// Package image has the commands about images: those of a server, those on this machine, the
// catalogue of a workspace, and the registries that images come from.
package image
