// Package auth says who asks: it turns the bearer token of a request into an
// [Identity], and makes, lists and revokes tokens.
//
// A token is "mbx_" and 256 random bits in base32. Only its SHA-256 is stored,
// so neither the database nor a backup of it lets anyone in. Lookups are cached
// for [CacheTime]: that is the longest a revoked token works on, and only when
// it was revoked by another process.
//
// Addresses that present wrong tokens are slowed down; a token that was good a
// moment ago is never refused for what its neighbours behind the same address do.
package auth
