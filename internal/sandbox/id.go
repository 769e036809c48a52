package sandbox

import (
	"crypto/rand"
	"encoding/base32"
	"strings"

	"github.com/google/uuid"
)

// ID identifies a sandbox: a UUID in its canonical text form.
type ID string

// WorkspaceID identifies a workspace: a UUID in its canonical text form.
type WorkspaceID string

// UserID identifies a user. It is a plain string.
type UserID string

// ImageID identifies an image, or an entry of a catalogue: a UUID in its canonical text form.
type ImageID string

// RegistryID identifies a registry credential: a UUID in its canonical text form.
type RegistryID string

// NewID returns a new sandbox ID. IDs sort by the time they were made (UUIDv7).
func NewID() ID { return ID(uuid.Must(uuid.NewV7()).String()) }

// NewWorkspaceID returns a new workspace ID.
func NewWorkspaceID() WorkspaceID { return WorkspaceID(uuid.Must(uuid.NewV7()).String()) }

// ParseID returns s as an ID when s is a UUID in canonical form.
func ParseID(s string) (ID, bool) {
	u, err := uuid.Parse(s)
	if err != nil || u.String() != strings.ToLower(s) {
		return "", false
	}
	return ID(u.String()), true
}

// ParseHex returns the canonical form of a UUID that is written as 32 hexadecimal digits in lower case
// without dashes, as Agentuity writes IDs.
func ParseHex(s string) (string, bool) {
	u, err := uuid.Parse(s)
	if err != nil || len(s) != 32 || s != strings.ToLower(s) {
		return "", false
	}
	return u.String(), true
}

// shortIDMin is the minimum length of a short ID. IDs begin with the time of creation, so that a
// shorter beginning belongs to the IDs of all sandboxes of a day.
const shortIDMin = 6

// IsShortID reports whether s may be the beginning of an ID.
func IsShortID(s string) bool {
	const form = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
	if len(s) < shortIDMin || len(s) >= len(form) {
		return false
	}
	for i, c := range []byte(strings.ToLower(s)) {
		if dash := form[i] == '-'; dash && c != '-' || !dash && !strings.ContainsRune("0123456789abcdef", rune(c)) {
			return false
		}
	}
	return true
}

// labelEncoding has no padding and only characters that are legal in a DNS label.
var labelEncoding = base32.NewEncoding("abcdefghijkmnpqrstuvwxyz23456789").WithPadding(base32.NoPadding)

const (
	labelRandomBytes = 10 // 80 bits, 16 characters
	labelMaxSlug     = 32
)

// HostLabel returns a new host label for the sandbox called name: a readable
// slug of the name, a dash, and 80 random bits. It is a valid DNS label, never
// contains "--" (which separates a port, see the proxy package), and knowing the
// name is not enough to guess it.
func HostLabel(name string) string {
	var random [labelRandomBytes]byte
	_, _ = rand.Read(random[:]) // never fails: crypto/rand aborts the program instead
	suffix := labelEncoding.EncodeToString(random[:])
	if slug := Slug(name); slug != "" {
		return slug + "-" + suffix
	}
	return "s-" + suffix
}

// Slug keeps the letters and digits of name in lower case, with single dashes
// for everything else, cut to 32 characters; it may be "".
func Slug(name string) string {
	var b strings.Builder
	dash := false
	for _, r := range strings.ToLower(name) {
		if b.Len() >= labelMaxSlug {
			break
		}
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			if dash && b.Len() > 0 {
				b.WriteByte('-')
			}
			dash = false
			b.WriteRune(r)
		default:
			dash = true
		}
	}
	return b.String()
}
