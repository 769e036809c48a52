// Package rootfs makes root filesystems of layers and files, and reads them.
//
// A [Tree] is a root filesystem in memory, as names and metadata; the contents of files stay in a
// temporary file until the EROFS is written. Layers are applied to a tree, and nothing is ever
// unpacked on the host, so that no name and no link in a hostile layer leads to a file of the host.
// Three types write trees as EROFS files:
//
//	Write     from a tar stream, with a normalised OCI layer
//	Writer    from a tree and another layer, with the OCI layer of the latter; of the layer
//	          alone if the tree lies over a [Base]
//	Unpacker  from the layers of an image of other tools
//
// [Files] are the files of a root filesystem or an archive, which [Copy] copies into a layer. A
// [Reader] lists and packs files of an EROFS without a tree.
//
// gVisor has two requirements for an EROFS that the EROFS writer does not meet. Files must not be
// stored inline, because gVisor cannot map such files into memory. Files must not have extended
// attributes, because gVisor cannot open them; the OCI layer keeps the attributes. Hard links stay
// hard links.
package rootfs
