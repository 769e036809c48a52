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
	"sync"

	"github.com/modbox/modbox/internal/durable"
	"github.com/modbox/modbox/internal/sandbox"
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

// Joined is the file with the identity of a control plane's worker. Another worker would not have the sandboxes, and
// the control plane would end them. It is safe for concurrent use.
type Joined struct {
	path string
	mu   sync.Mutex // held while the file is read and made
}

// NewJoined returns the file at path, which may not exist.
func NewJoined(path string) *Joined { return &Joined{path: path} }

// Check returns an error for a worker that is not the control plane's. Errors: Conflict, with what to do.
func (j *Joined) Check(w Identity) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, err := j.known(w)
	return err
}

// Record makes a worker the control plane's, if it has none. Errors: as Check.
func (j *Joined) Record(w Identity) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if known, err := j.known(w); err != nil || known {
		return err
	}
	return durable.WriteFile(j.path, []byte(w.ID+" "+w.Key+"\n"))
}

// known reports whether a worker is the control plane's. Without a worker it is not. The caller holds mu.
func (j *Joined) known(w Identity) (bool, error) {
	text, err := os.ReadFile(j.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("identity of the worker: %w", err)
	case strings.TrimSpace(string(text)) != w.ID+" "+w.Key:
		id, _, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
		return false, sandbox.Errorf(sandbox.Conflict, "this server has the worker %s already, and %s is another or has another key; if that one is gone with its sandboxes, remove %s", id, w.ID, j.path)
	}
	return true, nil
}
