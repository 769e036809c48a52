// Package saved has the files of a checkpoint: gVisor's own, the written files of the box as a layer,
// and the manifest, which lists the requirements of a restore and the digests of all files.
//
// A directory is a checkpoint when its manifest is complete. Files in it may be damaged later, so
// gVisor's files and the layer are compared with their digests whenever they are read.
package saved
