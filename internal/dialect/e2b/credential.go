package e2b

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/modbox/modbox/internal/sandbox"
)

// Keys makes authentication codes: secret.Keys.
type Keys interface {
	// MAC returns the authentication code of a message for a purpose, and the id of the key.
	MAC(purpose, message string) (keyID string, mac []byte, err error)
	// CheckMAC reports whether mac is the result of MAC with that key.
	CheckMAC(purpose, message, keyID string, mac []byte) (bool, error)
}

// Kind says for which of the ports of its sandbox a credential is.
type Kind string

// The kinds of credentials.
const (
	// Access is for the commands and files of the sandbox.
	Access Kind = "e2b access"
	// Traffic is for the ports of a sandbox that is not open to everybody.
	Traffic Kind = "e2b traffic"
)

// Credentials makes and checks the credentials of sandboxes. A credential follows from the id of its
// sandbox and a key of the server, so that none is stored, and is valid as long as the key exists.
type Credentials struct{ keys Keys }

// NewCredentials returns credentials made with keys.
func NewCredentials(keys Keys) Credentials { return Credentials{keys} }

// Make returns the credential of a sandbox: hexadecimal digits of the id of the key and of the code.
func (c Credentials) Make(kind Kind, id sandbox.ID) (string, error) {
	keyID, mac, err := c.keys.MAC(string(kind), string(id))
	if err != nil {
		return "", fmt.Errorf("make %s token of sandbox %s: %w", kind, id, err)
	}
	return keyID + hex.EncodeToString(mac), nil
}

// Check reports whether a text is the credential of a sandbox.
func (c Credentials) Check(kind Kind, id sandbox.ID, text string) (bool, error) {
	const macDigits = 2 * sha256.Size
	if len(text) <= macDigits {
		return false, nil
	}
	mac, err := hex.DecodeString(text[len(text)-macDigits:])
	if err != nil {
		return false, nil //nolint:nilerr // another text is no credential
	}
	return c.keys.CheckMAC(string(kind), string(id), text[:len(text)-macDigits], mac)
}

// Signed has the properties of the URL of a file that its signature covers.
type Signed struct {
	Path      string
	Operation string // read or write
	User      string // "" if the URL names none
	Expires   int64  // a Unix time; 0 for never
}

// CheckSignature reports whether a signature was made with the access token of a sandbox.
func (c Credentials) CheckSignature(id sandbox.ID, s Signed, signature string) (bool, error) {
	token, err := c.Make(Access, id)
	if err != nil {
		return false, err
	}
	want := s.sign(token)
	return subtle.ConstantTimeCompare([]byte(want), []byte(signature)) == 1, nil
}

// sign returns the signature of a URL, as the clients compute it.
func (s Signed) sign(token string) string {
	text := s.Path + ":" + s.Operation + ":" + s.User + ":" + token
	if s.Expires != 0 {
		text += ":" + strconv.FormatInt(s.Expires, 10)
	}
	sum := sha256.Sum256([]byte(text))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}
