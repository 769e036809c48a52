package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/statedir"
	"github.com/modbox/modbox/internal/store"
)

// ReadFirstToken returns the token whose secret is in the token file of the state directory dir. It
// returns nil when the file does not exist, or st does not have the token.
func ReadFirstToken(ctx context.Context, dir string, st *store.Store) (*account.Token, error) {
	text, err := os.ReadFile(filepath.Join(dir, statedir.TokenFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the first token: %w", err)
	}
	t, err := st.Tokens.TokenByHash(ctx, auth.Hash(strings.TrimSpace(string(text))))
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &t, nil
}
