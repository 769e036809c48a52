// Package image makes and stores the root filesystems that sandboxes boot from.
//
// A recipe (a directory with a recipe.yaml, see package recipe) describes an image. [Store.Build]
// turns it into two things, without any registry: an OCI image in an OCI image layout, for
// exchange, and an EROFS root filesystem, from which sandboxes boot. The EROFS is
// content-addressed: its sha256 is the image's digest, and the same recipe over the same package
// versions gives the same digest.
//
// A [Store] is a directory:
//
//	index.json        the version of the format
//	records/          a descriptor of each image: see package index
//	images/HEX.erofs  the root filesystems, or layers of them (see stack), named by their sha256
//	used/HEX          empty files: their times are the last uses of images
//	pulls/            blobs of pulls that have not ended
//	layout/           the OCI image layout; its index.json is derived from ours
//	tmp/              work in progress, one locked directory per build
//	locks/            lock files
//
// Files are written beside their place, synced and renamed, so a crash leaves only directories in
// tmp/, which the next Open removes when no process holds their lock. Several processes may use a
// store at a time: a build takes the lock of its reference, a change of the index the lock of the
// index, and readers notice a changed index by themselves.
//
// [Store.Stage] makes an image of a base and a layer, without a recipe, and [Staged.Publish] adds
// it to the store. The store calls the functions of its owner, such as [Options.InUse], without a
// lock: they may call the store.
//
// Package rootfs works on the files: nothing is ever unpacked on the host.
package image
