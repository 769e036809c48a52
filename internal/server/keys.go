package server

import (
	"os"

	"golang.org/x/crypto/ssh"

	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/secret"
	"github.com/modbox/modbox/internal/sshd"
	"github.com/modbox/modbox/internal/worker"
)

// secretKeyVariable is the environment variable with the keys for secrets, instead of the file.
const secretKeyVariable = "MODBOX_SECRET_KEY"

// OpenKeys opens the keys that encrypt secrets in the database: from the variable
// MODBOX_SECRET_KEY, else from the file secrets.key_file, which it creates if it is missing.
func OpenKeys(cfg config.Config) (*secret.Keys, error) {
	return secret.Open(cfg.Secrets.KeyFile, os.Getenv(secretKeyVariable))
}

// makeFiles opens the keys, and makes the files that are missing and that other servers with the same state directory need as they are.
func (p *parts) makeFiles(cfg config.Config) error {
	var err error
	if p.keys, err = withSpace(p.disk, func() (*secret.Keys, error) { return OpenKeys(cfg) }); err != nil {
		return err
	}
	if cfg.Worker.Listen != "" {
		if _, err := withSpace(p.disk, func() (*worker.Authority, error) { return openAuthority(cfg) }); err != nil {
			return err
		}
	}
	if cfg.SSH.Listen != "" {
		_, err = withSpace(p.disk, func() (ssh.Signer, error) { return sshd.HostKey(cfg.StateDir) })
	}
	return err
}
