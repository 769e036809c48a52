package e2b

import (
	"encoding/base32"
	"encoding/hex"
	"strings"

	"github.com/google/uuid"

	"github.com/modbox/modbox/internal/sandbox"
)

// The first characters of ids.
const (
	prefixSandbox  = "i"
	prefixSnapshot = "t" // a snapshot is a template of the dialect
	// prefixKey is the first part of an API key. Older clients refuse a key that does not begin with
	// it and go on with hexadecimal digits.
	prefixKey = "e2b_"
	// defaultTag is the tag that the dialect gives to a snapshot by its id.
	defaultTag = "default"
)

// idEncoding has only characters that are legal in a DNS label, in lower case.
var idEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// external returns the dialect's form of one of our IDs, which are UUIDs.
func external[T ~string](prefix string, id T) string {
	u, err := uuid.Parse(string(id))
	if err != nil {
		return prefix // no id of ours
	}
	return prefix + idEncoding.EncodeToString(u[:])
}

// internal returns our form of the dialect's id; ok is false if it is none.
func internal[T ~string](prefix, s string) (id T, ok bool) {
	digits, found := strings.CutPrefix(s, prefix)
	raw, err := idEncoding.DecodeString(digits)
	if !found || err != nil || len(raw) != len(uuid.UUID{}) {
		return "", false
	}
	id = T(uuid.UUID(raw).String())
	return id, external(prefix, id) == s // the last digit has unused bits
}

// SandboxID returns the dialect's id of a sandbox.
func SandboxID(id sandbox.ID) string { return external(prefixSandbox, id) }

// ParseSandboxID returns the id of the sandbox that a client names. It also accepts our own form.
func ParseSandboxID(s string) (sandbox.ID, bool) {
	if id, ok := internal[sandbox.ID](prefixSandbox, s); ok {
		return id, true
	}
	return sandbox.ParseID(s)
}

// Token returns the API token in a key: the token itself, or "e2b_" with the token's bytes in
// hexadecimal digits.
func Token(key string) string {
	if digits, ok := strings.CutPrefix(key, prefixKey); ok {
		if text, err := hex.DecodeString(digits); err == nil {
			return string(text)
		}
	}
	return key
}
