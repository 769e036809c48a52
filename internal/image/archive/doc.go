// Package archive reads and writes OCI images as files. A [Layout] is a directory with the blobs
// of many images, and [Layout.Export] writes one of them as a tar. [Read] reads the images of a
// layout, of a tar with a layout, or of an archive of docker save, all of which may be hostile.
// The package does not know which images a store names.
package archive
