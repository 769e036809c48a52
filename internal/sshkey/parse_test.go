package sshkey_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"math/big"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/sshkey"
)

func authorized(t *testing.T, public crypto.PublicKey) string {
	t.Helper()
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return string(ssh.MarshalAuthorizedKey(key))
}

// rsaKey returns a public key of a length; nobody signs with it.
func rsaKey(bits uint) *rsa.PublicKey {
	n := new(big.Int).Lsh(big.NewInt(1), bits-1)
	return &rsa.PublicKey{N: n.Add(n, big.NewInt(1)), E: 65537}
}

func TestParse(t *testing.T) {
	edKey, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ecKey, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ed := strings.TrimSpace(authorized(t, edKey))
	for name, test := range map[string]struct{ text, comment, refusal string }{
		"ed25519":               {text: ed + " me@laptop\n", comment: "me@laptop"},
		"without_comment":       {text: ed},
		"ecdsa":                 {text: authorized(t, &ecKey.PublicKey)},
		"rsa":                   {text: authorized(t, rsaKey(2048))},
		"short_rsa":             {text: authorized(t, rsaKey(1024)), refusal: "1024 bits"},
		"long_rsa":              {text: authorized(t, rsaKey(16384)), refusal: "16384 bits"},
		"dsa":                   {text: "ssh-dss AAAAB3NzaC1kc3MAAACBAP", refusal: "ssh-dss"},
		"empty":                 {text: " \n", refusal: "empty"},
		"private":               {text: "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blbn\n-----END OPENSSH PRIVATE KEY-----\n", refusal: "private key"},
		"two_keys":              {text: ed + "\n" + ed, refusal: "one line"},
		"options":               {text: `command="true" ` + ed, refusal: "options"},
		"garbage":               {text: "ssh-ed25519 AAAA", refusal: "public key of OpenSSH"},
		"more_than_a_key_holds": {text: ed + strings.Repeat(" ", 10) + strings.Repeat("x", 5000), refusal: "4096 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			key, comment, err := sshkey.Parse(test.text)
			if test.refusal == "" {
				if err != nil || key == nil || comment != test.comment {
					t.Errorf("%v, comment %q, %v", key, comment, err)
				}
				return
			}
			if sandbox.CodeOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), test.refusal) || strings.Contains(err.Error(), "b3Blbn") {
				t.Errorf("error %v, want one that says %q", err, test.refusal)
			}
		})
	}
}
