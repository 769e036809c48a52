package sshkey

import (
	"bytes"
	"crypto/rsa"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// rsaMin and rsaMax bound RSA keys: shorter keys are weak, longer keys cost too much time.
	rsaMin, rsaMax = 2048, 8192
	// textMax bounds the text of a key.
	textMax = 4 << 10
)

// SignatureAlgorithms are the algorithms by which clients prove that they have a key, without SHA-1.
var SignatureAlgorithms = []string{
	ssh.KeyAlgoED25519, ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKECDSA256, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521,
	ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256,
}

const kinds = "ssh-keygen -t ed25519 makes one"

// Parse returns the public key of a text, such as the content of id_ed25519.pub, and its comment. Errors:
// Invalid, naming public_key.
func Parse(text string) (ssh.PublicKey, string, error) {
	invalid := func(format string, args ...any) (ssh.PublicKey, string, error) {
		return nil, "", sandbox.InvalidField("public_key", format, args...)
	}
	text = strings.TrimSpace(text)
	switch {
	case strings.Contains(text, "PRIVATE KEY"):
		return invalid("is a private key, which must not leave your machine; send the public key, whose file ends in .pub")
	case text == "":
		return invalid("is empty; %s", kinds)
	case len(text) > textMax:
		return invalid("must have at most %d bytes", textMax)
	case strings.ContainsAny(text, "\n\r\x00"):
		return invalid("must be one key on one line")
	}
	key, comment, options, _, err := ssh.ParseAuthorizedKey([]byte(text))
	switch {
	case err != nil && strings.HasPrefix(text, "ssh-dss "):
		return invalid("has the type ssh-dss, which is not accepted; %s", kinds)
	case err != nil:
		return invalid("is not a public key of OpenSSH, such as ssh-ed25519 AAAA…; %s", kinds)
	case len(options) > 0:
		return invalid("must not have options of authorized_keys before the key")
	}
	if err := Check(key); err != nil {
		return nil, "", err
	}
	return key, comment, nil
}

// Check returns nil for a key of a type and length that logs in. Errors: Invalid, naming public_key.
func Check(key ssh.PublicKey) error {
	switch key.Type() {
	case ssh.KeyAlgoED25519, ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKECDSA256, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521:
		return nil
	case ssh.KeyAlgoRSA:
		public, ok := key.(ssh.CryptoPublicKey)
		if !ok {
			break
		}
		if n, ok := public.CryptoPublicKey().(*rsa.PublicKey); ok {
			if bits := n.N.BitLen(); bits < rsaMin || bits > rsaMax {
				return sandbox.InvalidField("public_key", "is an RSA key of %d bits; it must have %d to %d", bits, rsaMin, rsaMax)
			}
			return nil
		}
	}
	return sandbox.InvalidField("public_key", "has the type %s, which is not accepted: use ed25519, ecdsa, or rsa with at least %d bits; %s", sandbox.OneLine(key.Type()), rsaMin, kinds)
}

// textOf returns the type and the base64 of a key.
func textOf(key ssh.PublicKey) string { return string(bytes.TrimSpace(ssh.MarshalAuthorizedKey(key))) }
