// Package image has the commands about images: the images of a server and of this machine, the
// catalogue of a workspace, and the registries that images come from.
package image
