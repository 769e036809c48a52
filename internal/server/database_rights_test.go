package server

import (
	"log/slog"
	"path/filepath"
	"testing"

	"gvisor.dev/gvisor/pkg/cleanup"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/server/services"
	"github.com/modbox/modbox/internal/sshkey"
	"github.com/modbox/modbox/internal/store/sshkeyrows"
	"github.com/modbox/modbox/internal/store/storetest"
)

// TestRightsTakenBesideTheServer revokes a token, and deletes an SSH key, with a client of the database: what checks rights again when they
// change, such as a forwarded port, notices it.
func TestRightsTakenBesideTheServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "modbox.db")
	st := storetest.Open(t, path)
	ws, user, err := st.Workspaces.EnsureDefaults(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a, err := auth.New(auth.Store{Tokens: st.Tokens, Memberships: st.Workspaces, Sessions: st.Sessions, Users: st.Users})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	_, token, err := a.CreateToken(t.Context(), auth.Identity{User: user, Workspace: ws}, auth.TokenRequest{Description: "x"})
	if err != nil {
		t.Fatal(err)
	}
	p := parts{store: st, Services: &services.Services{Auth: a, SSHKeys: sshkey.New(sshkeyrows.New(st.DB), a)}}
	cu := cleanup.Make(func() {})
	defer cu.Clean()
	keys := p.SSHKeys.Changed()
	p.watchRights(t.Context(), slog.New(slog.DiscardHandler), &cu)
	<-keys // told at first
	keys = p.SSHKeys.Changed()
	if err := a.StillPermits(t.Context(), user, token.ID, ws, account.SandboxesRead); err != nil {
		t.Fatal(err)
	}
	changed := a.Changed()
	if _, err := storetest.Raw(t, path).ExecContext(t.Context(), "UPDATE tokens SET revoked_at = 1 WHERE id = $1", token.ID); err != nil {
		t.Fatal(err)
	}
	<-changed
	if err := a.StillPermits(t.Context(), user, token.ID, ws, account.SandboxesRead); err == nil {
		t.Error("the token works on")
	}
	<-keys
}
