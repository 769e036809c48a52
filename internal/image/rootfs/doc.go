// Package rootfs makes root filesystems of layers and files, and reads them.
//
// A [Tree] is a root filesystem in memory, as names and metadata; the contents of
// files stay in a temporary file until the EROFS is written. Layers are laid over a
// tree, and nothing is ever unpacked on the host, so that no name and no link in a
// hostile layer leads to a file of the host. Three types write trees as EROFS files:
//
//	Write     of a tar stream, with a normalised OCI layer of it
//	Writer    of a tree and one more layer, with an OCI layer of the latter
//	Unpacker  of the layers of an image of other tools
//
// [Files] are the files of a root filesystem or an archive, to be copied by [Copy]
// into a layer. A [Reader] lists and packs files of an EROFS without a tree.
//
// gVisor asks two things of an EROFS for which the EROFS writer does not provide.
// Files are never stored inline, because gVisor cannot map such files into memory.
// Extended attributes are left out, because gVisor cannot open files that have any;
// the OCI layer keeps them. Hard links are hard links.
package rootfs
