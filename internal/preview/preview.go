// Package preview signs and checks the tokens that let visitors use a private port of a sandbox:
// links that expire, and the cookie that a browser gets for a link.
//
// Both are texts with their expiry, the ids of their maker, and an authentication code over these,
// the sandbox, the port and the label of its URL. The server stores none of them: when a port gets
// another label, or is not published any more, its links end. The caller of Check asks whether the
// maker may still use the sandbox: a link ends with the rights of its maker.
package preview

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// LinkPrefix begins the token of every link, so that people and secret scanners recognize one.
const LinkPrefix = "mbl_"

// Parameter is the query parameter of links that has the token.
const Parameter = "modbox_token"

// The lifetimes of links.
const (
	LifetimeDefault = time.Hour
	LifetimeMin     = time.Minute
	LifetimeMax     = 7 * 24 * time.Hour
)

const (
	keyIDBytes = 8
	macBytes   = 32
	timeBytes  = 8
	// headBytes are the expiry in seconds, the key's id and the code. The maker follows.
	headBytes = timeBytes + keyIDBytes + macBytes
	// makerMax bounds the text of a maker, so that tokens fit into cookies and URLs.
	makerMax = 256
)

// Keys makes and checks message authentication codes. Internal/secret implements it.
type Keys interface {
	// MAC returns the code of a message for a purpose, and the id of its key in hexadecimal digits.
	MAC(purpose, message string) (keyID string, mac []byte, err error)
	// CheckMAC reports whether it is the code, in constant time.
	CheckMAC(purpose, message, keyID string, mac []byte) (bool, error)
}

// Kind is the purpose of a token. A token of one kind is not valid as another kind.
type Kind string

// The kinds of tokens.
const (
	Link   Kind = "link"   // in a link that its maker passes on
	Cookie Kind = "cookie" // in the cookie that a browser gets for a link
)

// Maker names the caller that made a link.
type Maker struct {
	User sandbox.UserID
	// Token is the id of the API token that made the link; "" for a signed-in user.
	Token string
}

// Grant is the content of a token.
type Grant struct {
	Maker   Maker
	Expires time.Time // in whole seconds
}

// Links signs and checks tokens. Safe for concurrent use.
type Links struct{ keys Keys }

// New returns Links that are signed with keys.
func New(keys Keys) *Links { return &Links{keys: keys} }

// Sign returns a token for a published port of a sandbox. The expiry of the grant is
// rounded down to seconds.
func (l *Links) Sign(kind Kind, id sandbox.ID, port sandbox.PublishedPort, g Grant) (string, error) {
	seconds := uint64(g.Expires.Unix()) //nolint:gosec // a time to come
	maker := g.Maker.Token + " " + string(g.Maker.User)
	if len(maker) > makerMax {
		return "", fmt.Errorf("sign %s for port %d of sandbox %s: the ids of its maker are too long", kind, port.Port, id)
	}
	keyID, mac, err := l.keys.MAC(purpose(kind), message(id, port, seconds, maker))
	if err != nil {
		return "", fmt.Errorf("sign %s for port %d of sandbox %s: %w", kind, port.Port, id, err)
	}
	rawID, err := hex.DecodeString(keyID)
	if err != nil || len(rawID) != keyIDBytes || len(mac) != macBytes {
		return "", fmt.Errorf("sign %s for port %d of sandbox %s: the key has an unknown form", kind, port.Port, id)
	}
	raw := binary.BigEndian.AppendUint64(make([]byte, 0, headBytes+len(maker)), seconds)
	raw = append(append(append(raw, rawID...), mac...), maker...)
	return LinkPrefix + base64.RawURLEncoding.EncodeToString(raw), nil
}

// Check returns the grant of a token for a published port of a sandbox. Errors: Unauthenticated
// when the token is not for that port, or has expired.
func (l *Links) Check(kind Kind, token string, id sandbox.ID, port sandbox.PublishedPort) (Grant, error) {
	wrong := sandbox.Errorf(sandbox.Unauthenticated, "the link is not for this URL, or was revoked; ask for a new one")
	text, ok := strings.CutPrefix(token, LinkPrefix)
	if !ok || len(text) > base64.RawURLEncoding.EncodedLen(headBytes+makerMax) {
		return Grant{}, wrong
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) < headBytes {
		return Grant{}, wrong
	}
	seconds, maker := binary.BigEndian.Uint64(raw), string(raw[headBytes:])
	keyID, mac := hex.EncodeToString(raw[timeBytes:timeBytes+keyIDBytes]), raw[timeBytes+keyIDBytes:headBytes]
	good, err := l.keys.CheckMAC(purpose(kind), message(id, port, seconds, maker), keyID, mac)
	if err != nil {
		return Grant{}, fmt.Errorf("check %s for port %d of sandbox %s: %w", kind, port.Port, id, err)
	}
	apiToken, user, ok := strings.Cut(maker, " ")
	if !good || !ok {
		return Grant{}, wrong
	}
	g := Grant{Maker: Maker{User: sandbox.UserID(user), Token: apiToken}, Expires: time.Unix(int64(seconds), 0)} //nolint:gosec // signed by us
	if !time.Now().Before(g.Expires) {
		return Grant{}, sandbox.Errorf(sandbox.Unauthenticated, "the link has expired; ask for a new one")
	}
	return g, nil
}

func purpose(kind Kind) string { return "preview " + string(kind) }

// message returns the signed text. Only its last part can contain the separator.
func message(id sandbox.ID, port sandbox.PublishedPort, seconds uint64, maker string) string {
	return fmt.Sprintf("%s %d %s %d %s", id, port.Port, port.Label, seconds, maker)
}
