package main

import (
	"errors"
	"fmt"

	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/store"
)

// adviseOnDatabase adds to the error of a database that is damaged what to do about it.
func adviseOnDatabase(cfg config.Config, err error) error {
	if !errors.Is(err, store.ErrDamaged) {
		return err
	}
	last := "no backup was found"
	if copies, cerr := store.Copies(cfg.StateDir); cerr == nil && len(copies) > 0 {
		last = "the last copy is " + copies[0]
	}
	return fmt.Errorf("%w; nothing was changed. Restore a backup with \"modbox restore\": %s", err, last)
}
