// Package object stores content-addressed objects in a bucket: a directory, a container of Azure Blob Storage, or a bucket of S3 or of a
// service with its interface.
//
// # Content
//
// A blob is at most [MaxBlob] bytes. Its name is a digest of its content, so that the same content is
// stored once, and reading it verifies it. Files are cut into blobs of [ChunkBytes] bytes: the blobs of
// files that have changed in some places, of interrupted uploads and of other files with the same content are not
// sent again. Offsets in saved memory and root filesystems stay the same when a part changes, so
// that chunks of a fixed size suffice.
//
// Other objects have names chosen by the caller, "backups/…" for example, and say which blobs are in use.
// [Store.Collect] removes all other blobs once they are older than a grace period.
//
// # Names in a bucket
//
//	store.json           the format, and which key the objects are encrypted with
//	blobs/ab/abcdef…     blobs
//	leases/…             uploads, holds and collections in progress
//
// # Encryption
//
// With a key every object except store.json and leases is encrypted by AES-256-GCM with a key derived from its
// name, and the name of a blob is an HMAC of its content: a reader of the bucket learns sizes and times. An object
// under the name of another is refused.
package object
