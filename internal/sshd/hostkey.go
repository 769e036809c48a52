package sshd

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/modbox/modbox/internal/statedir"
)

// HostKey returns the server's private key, from the state directory. The first call makes it.
func HostKey(stateDir string) (ssh.Signer, error) {
	path := filepath.Join(stateDir, statedir.SSHHostKeyFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err = statedir.WriteSecret(stateDir, statedir.SSHHostKeyFile, newHostKey); err == nil {
			text, err = os.ReadFile(path)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("host key of SSH: %w", err)
	}
	key, err := ssh.ParsePrivateKey(text)
	if err != nil {
		return nil, fmt.Errorf("host key of SSH: %s: %w", path, err)
	}
	return key, nil
}

// newHostKey returns the text of a new private key.
func newHostKey() (text string, made bool, err error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return "", false, err
	}
	block, err := ssh.MarshalPrivateKey(private, "modbox")
	if err != nil {
		return "", false, err
	}
	return strings.TrimSpace(string(pem.EncodeToMemory(block))), true, nil
}
