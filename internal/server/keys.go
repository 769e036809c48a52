package server

import (
	"os"

	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/secret"
)

// secretKeyVariable has the keys for secrets, instead of the file.
const secretKeyVariable = "MODBOX_SECRET_KEY"

// OpenKeys opens the keys that encrypt secrets in the database: of the variable
// MODBOX_SECRET_KEY, else of the file secrets.key_file, which it makes when it is missing.
func OpenKeys(cfg config.Config) (*secret.Keys, error) {
	return secret.Open(cfg.Secrets.KeyFile, os.Getenv(secretKeyVariable))
}
