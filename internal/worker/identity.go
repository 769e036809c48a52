package worker

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Identity is a worker that has proved that it has its key.
type Identity struct {
	ID string
	// Key is the SHA-256 of its public key, in hexadecimal.
	Key string
}

// identity returns the identity of a worker with a public key, which the x509 package has parsed.
func identity(id string, key any) Identity {
	der, _ := x509.MarshalPKIXPublicKey(key) // cannot fail for what it has parsed
	return Identity{id, digest(der)}
}

// openKey returns the key of a worker, from a file in its directory that the first call makes.
func openKey(dir string) (*ecdsa.PrivateKey, error) {
	text, err := secretFile(dir, keyFile, newKey)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, keyFile)
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, fmt.Errorf("%s has no key", path)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s: its key is of another kind", path)
	}
	return key, nil
}

func newKey() (string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))), nil
}

// ReadJoined returns the worker in a file of a control plane of an earlier version, which had one worker. found is whether there is the file.
func ReadJoined(path string) (w Identity, found bool, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Identity{}, false, nil
	}
	if err != nil {
		return Identity{}, false, fmt.Errorf("identity of the worker: %w", err)
	}
	id, key, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	if _, ok := parseWorkerID(id); !ok {
		return Identity{}, false, fmt.Errorf("identity of the worker: %s does not name a worker", path)
	}
	return Identity{id, key}, true, nil
}
