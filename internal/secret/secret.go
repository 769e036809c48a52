// Package secret encrypts what the server must be able to read again, such as
// the passwords of registries, with keys of a file or the environment.
//
// Of several keys the first encrypts and all decrypt, so that keys can be changed
// while a server runs: the file is read again when it has changed.
package secret

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/modbox/modbox/internal/durable"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	keyBytes = 32 // AES-256
	fileMax  = 64 << 10
)

// Keys encrypts and decrypts. Safe for concurrent use, also by several processes
// with the same file.
type Keys struct {
	path  string
	fixed []key // of the environment; nil when they are in the file

	mu   sync.Mutex  // guards the key read last
	file os.FileInfo // the file then; it is replaced, never written in place
	read []key
}

// Sealed is an encrypted secret; KeyID names its key.
type Sealed struct {
	KeyID string
	Data  []byte
}

type key struct {
	id   string
	text string // as in the file
	aead cipher.AEAD
}

// Open returns the keys in a file, which is made with a new one when it is not
// there. When text is not empty, the keys are in it instead, separated by commas.
// A key is 32 random bytes in base64.
func Open(path, text string) (*Keys, error) {
	k := &Keys{path: path}
	if text != "" {
		fixed, err := parse(strings.ReplaceAll(text, ",", "\n"))
		if err != nil {
			return nil, fmt.Errorf("read the keys for secrets: %w", err)
		}
		k.fixed = fixed
		return k, nil
	}
	_, err := k.load()
	if errors.Is(err, fs.ErrNotExist) {
		err = k.Add()
	}
	if err != nil {
		return nil, err
	}
	return k, nil
}

// Fixed reports whether the keys are not in a file, and so cannot be changed here.
func (k *Keys) Fixed() bool { return k.fixed != nil }

// parse reads keys, one a line.
func parse(text string) ([]key, error) {
	var keys []key
	for _, line := range strings.Fields(text) {
		raw, err := base64.StdEncoding.DecodeString(line)
		if err != nil || len(raw) != keyBytes {
			return nil, fmt.Errorf("key %d is not %d bytes in base64", len(keys)+1, keyBytes) // without the text: it is a secret
		}
		block, err := aes.NewCipher(raw)
		if err != nil {
			return nil, err
		}
		aead, err := cipher.NewGCM(block)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(append([]byte("modbox key id\x00"), raw...))
		keys = append(keys, key{id: hex.EncodeToString(sum[:8]), text: line, aead: aead})
	}
	if len(keys) == 0 {
		return nil, errors.New("there is no key")
	}
	return keys, nil
}

// load returns the keys; the first is used for encryption.
func (k *Keys) load() ([]key, error) {
	if k.fixed != nil {
		return k.fixed, nil
	}
	info, err := os.Stat(k.path)
	if err != nil {
		return nil, fmt.Errorf("read the keys for secrets: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 || info.Size() > fileMax {
		return nil, fmt.Errorf("read the keys for secrets: %s must be a small file that only its owner can read (chmod 600)", k.path)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.file != nil && os.SameFile(k.file, info) && k.file.Size() == info.Size() && k.file.ModTime().Equal(info.ModTime()) {
		return k.read, nil
	}
	text, err := os.ReadFile(k.path)
	if err != nil {
		return nil, fmt.Errorf("read the keys for secrets: %w", err)
	}
	keys, err := parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("read the keys for secrets in %s: %w", k.path, err)
	}
	k.file, k.read = info, keys
	return keys, nil
}

// Seal encrypts a secret of an object: it can be read for that object only.
func (k *Keys) Seal(plain, object string) (Sealed, error) {
	keys, err := k.load()
	if err != nil {
		return Sealed{}, err
	}
	nonce := make([]byte, keys[0].aead.NonceSize())
	_, _ = rand.Read(nonce) // never fails: crypto/rand aborts the program instead
	return Sealed{KeyID: keys[0].id, Data: keys[0].aead.Seal(nonce, nonce, []byte(plain), []byte(object))}, nil
}

// Unseal decrypts what Seal encrypted for the object. Errors: Unavailable when
// the key is not there.
func (k *Keys) Unseal(s Sealed, object string) (string, error) {
	keys, err := k.load()
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(keys, func(key key) bool { return key.id == s.KeyID })
	if i < 0 {
		return "", sandbox.Errorf(sandbox.Unavailable, "it is encrypted with the key %s, which this server does not have; restore its key file or write the secret anew", s.KeyID)
	}
	size := keys[i].aead.NonceSize()
	if len(s.Data) < size {
		return "", errors.New("the encrypted secret is cut short")
	}
	plain, err := keys[i].aead.Open(nil, s.Data[:size], s.Data[size:], []byte(object))
	if err != nil {
		return "", fmt.Errorf("decrypt: %w", err)
	}
	return string(plain), nil
}

// Add puts a new key before the others, which go on decrypting.
func (k *Keys) Add() error {
	raw := make([]byte, keyBytes)
	_, _ = rand.Read(raw) // never fails
	return k.change(func(keys []key) []key {
		return append([]key{{text: base64.StdEncoding.EncodeToString(raw)}}, keys...)
	})
}

// Stored is an encrypted secret in a Store.
type Stored struct {
	// Place and ID say where the Store has it: the kind of the secret and the id of a record.
	Place, ID string
	// Object is the object of the secret, see [Keys.Seal].
	Object string
	Sealed Sealed
}

// Store keeps what keys encrypt. Internal/store has one.
type Store interface {
	// StoredSecrets returns all encrypted secrets.
	StoredSecrets(ctx context.Context) ([]Stored, error)
	// ReplaceSecrets replaces prev, which StoredSecrets returned, by next, one by one but all or
	// nothing. A secret that is not as in prev any more stays as it is.
	ReplaceSecrets(ctx context.Context, prev, next []Stored) error
}

// Rotate encrypts all secrets in the store with a new key, or with the first key in the
// environment, and returns the number of secrets. It can be repeated after a crash at any moment,
// while servers run.
func (k *Keys) Rotate(ctx context.Context, st Store) (int, error) {
	if !k.Fixed() {
		if err := k.Add(); err != nil {
			return 0, err
		}
	}
	prev, err := st.StoredSecrets(ctx)
	if err != nil {
		return 0, err
	}
	next := slices.Clone(prev)
	for i, s := range prev {
		if next[i].Sealed, err = k.reseal(s); err != nil {
			return 0, fmt.Errorf("encrypt secrets anew: %s of %s: %w", s.Place, s.ID, err)
		}
	}
	if err := st.ReplaceSecrets(ctx, prev, next); err != nil || k.Fixed() {
		return len(next), err
	}
	// A server may have written secrets meanwhile, with a key that was the first shortly before.
	now, err := st.StoredSecrets(ctx)
	if err != nil {
		return len(next), err
	}
	used := map[string]bool{}
	for _, s := range now {
		used[s.Sealed.KeyID] = true
	}
	return len(next), k.Retain(func(id string) bool { return used[id] })
}

// reseal encrypts a secret with the first key.
func (k *Keys) reseal(s Stored) (Sealed, error) {
	plain, err := k.Unseal(s.Sealed, s.Object)
	if err != nil {
		return Sealed{}, err
	}
	return k.Seal(plain, s.Object)
}

// Retain removes the keys that are not in use. The first two stay: a server may
// have read the file just before the first was added and encrypt with the second.
func (k *Keys) Retain(inUse func(id string) bool) error {
	return k.change(func(keys []key) []key {
		var kept []key
		for i, key := range keys {
			if i < 2 || inUse(key.id) {
				kept = append(kept, key)
			}
		}
		return kept
	})
}

// change rewrites the file, whole or not at all.
func (k *Keys) change(f func([]key) []key) error {
	if k.fixed != nil {
		return sandbox.Errorf(sandbox.Unsupported, "the keys for secrets are given by the environment; change them there")
	}
	lock, err := os.OpenFile(k.path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("write the keys for secrets: %w", err)
	}
	defer lock.Close() // and unlocks
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("write the keys for secrets: %w", err)
	}
	keys, err := k.load()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var text bytes.Buffer
	for _, key := range f(keys) {
		text.WriteString(key.text + "\n")
	}
	if err := replace(k.path, text.Bytes()); err != nil {
		return fmt.Errorf("write the keys for secrets: %w", err)
	}
	return nil
}

// replace writes a file that only its owner can read and that survives a crash
// of the machine.
func replace(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new-*") // with mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails when it was renamed, which is fine
	_, err = f.Write(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return durable.Sync(filepath.Dir(path))
}
