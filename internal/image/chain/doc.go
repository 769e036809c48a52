// Package chain makes root filesystems of the layers of images of other tools.
//
// An image with large layers becomes a chain of root filesystems, see package stack: the lowest layers are one, the
// next layers lie over it, and what remains is the image's own. A chain has the name that OCI gives to its layers, the
// chain ID, and images with the same lowest layers share it. It has no name for users: only images over it need it.
package chain
