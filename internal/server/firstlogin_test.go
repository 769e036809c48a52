package server

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/server/services"
	"github.com/modbox/modbox/internal/statedir"
	"github.com/modbox/modbox/internal/store/storetest"
)

// TestFirstTokenOfServersThatStartTogether: one of several servers that start together makes the first token and the code for the first sign-in.
func TestFirstTokenOfServersThatStartTogether(t *testing.T) {
	for range 3 {
		dir := t.TempDir()
		st := storetest.Open(t, filepath.Join(dir, "modbox.db"))
		a, err := auth.New(auth.Store{Tokens: st.Tokens, Memberships: st.Workspaces, Sessions: st.Sessions, Users: st.Users})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		accounts, err := auth.NewAccounts(auth.AccountsConfig{}, auth.AccountStore{
			Users: st.Users, Workspaces: st.Workspaces, Members: st.Members, SignIns: st.Sessions, Invitations: st.Invitations, Identities: st.Users,
		}, a, nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer accounts.Close()
		p := parts{store: st, Services: &services.Services{Auth: a, Accounts: accounts}}
		cfg := config.Config{StateDir: dir, Replica: config.Replica{Active: 4}}
		var logged bytes.Buffer
		log := slog.New(slog.NewTextHandler(&logged, nil))
		var starts sync.WaitGroup
		for range 4 {
			starts.Go(func() {
				if err := p.bootstrap(t.Context(), cfg, log); err != nil {
					t.Error(err)
				}
			})
		}
		starts.Wait()
		if n := strings.Count(logged.String(), "made the first token"); n != 1 {
			t.Errorf("the first token was made %d times", n)
		}
		for _, name := range []string{statedir.TokenFile, statedir.FirstLoginFile} {
			if found, err := filepath.Glob(filepath.Join(dir, name)); err != nil || len(found) != 1 {
				t.Errorf("%s: %v, %v", name, found, err)
			}
		}
	}
}
