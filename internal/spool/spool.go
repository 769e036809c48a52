// Package spool has files for data under way.
package spool

import (
	"errors"
	"fmt"
	"os"
)

// Open returns a file without a name: it disappears with its close, or with the end of the
// server. It is in dir, which Open makes if it is missing; "" is the system's directory for
// temporary files.
func Open(dir string) (*os.File, error) {
	if dir != "" {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("spool: %w", err)
		}
	}
	f, err := os.CreateTemp(dir, "spool-")
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
