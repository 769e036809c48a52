// Package auth authenticates requests: it turns the bearer token of a request into an [Identity],
// and creates, lists and revokes tokens.
//
// A token is "mbx_" and 256 random bits in base32. Only its SHA-256 is stored, so that a copy of
// the database gives no access. Lookups are cached for [CacheTime], and until [Authenticator.Recheck];
// a token that another process revoked keeps working for at most that long.
//
// Addresses that present wrong tokens are slowed down, but a valid token is never refused because
// other clients behind the same address sent wrong tokens.
package auth
