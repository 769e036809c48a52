package accounts_test

import (
	"path/filepath"
	"testing"

	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store"
	"github.com/modbox/modbox/internal/store/storetest"
)

// openStore returns a store in a new file, whose path it also returns, with its default workspace and user.
func openStore(t *testing.T) (s *store.Store, path string, ws sandbox.WorkspaceID, user sandbox.UserID) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "modbox.db")
	s = storetest.Open(t, path)
	ws, user, err := s.Workspaces.EnsureDefaults(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s, path, ws, user
}
