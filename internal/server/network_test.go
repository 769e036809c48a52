package server

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestReadCA(t *testing.T) {
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, pub, key)
	if err != nil {
		t.Fatal(err)
	}
	cert := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	secret := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("secret")}))
	broken := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("none")}))
	path := filepath.Join(t.TempDir(), "ca.pem")
	for name, tc := range map[string]struct{ file, want string }{
		"certificates_only": {"# ours\n" + cert + secret + cert, cert + cert},
		"key_only":          {secret, ""},
		"broken":            {cert + broken, ""},
		"empty":             {"", ""},
		"too_large":         {strings.Repeat(cert, maxCA/len(cert)+1), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(path, []byte(tc.file), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := readCA(path)
			if string(got) != tc.want || (err == nil) != (tc.want != "") {
				t.Errorf("readCA() = %q, %v, want %q", got, err, tc.want)
			}
			if err != nil && !strings.Contains(err.Error(), "network.ca_file") {
				t.Errorf("readCA() = %v, want the setting named", err)
			}
		})
	}
	if got, err := readCA(""); got != nil || err != nil {
		t.Errorf("readCA without a file = %q, %v", got, err)
	}
	if _, err := readCA(path + ".none"); err == nil {
		t.Error("readCA of a file that is not there succeeded")
	}
}
