package server

import (
	"os"

	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/secret"
)

// secretKeyVariable is the environment variable with the keys for secrets, instead of the file.
const secretKeyVariable = "MODBOX_SECRET_KEY"

// OpenKeys opens the keys that encrypt secrets in the database: from the variable
// MODBOX_SECRET_KEY, else from the file secrets.key_file, which it creates if it is missing.
func OpenKeys(cfg config.Config) (*secret.Keys, error) {
	return secret.Open(cfg.Secrets.KeyFile, os.Getenv(secretKeyVariable))
}
