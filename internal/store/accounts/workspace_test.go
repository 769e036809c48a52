package accounts_test

import (
	"testing"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/sandbox"
)

func TestEnsureDefaultsIsIdempotent(t *testing.T) {
	s, _, ws, _ := openStore(t)
	again, user, err := s.Workspaces.EnsureDefaults(t.Context())
	if err != nil || again != ws {
		t.Errorf("EnsureDefaults again = %s, %v, want %s", again, err, ws)
	}
	for _, tt := range []struct {
		user sandbox.UserID
		ws   sandbox.WorkspaceID
		want sandbox.Code
	}{{user, ws, ""}, {"stranger", ws, sandbox.NotFound}, {user, sandbox.NewWorkspaceID(), sandbox.NotFound}} {
		got, err := s.Workspaces.Membership(t.Context(), tt.user, tt.ws)
		if sandbox.CodeOf(err) != tt.want || err == nil && (got.Role != account.RoleOwner || !got.Administrator) {
			t.Errorf("Membership(%s, %s) = %+v, %v, want code %q", tt.user, tt.ws, got, err, tt.want)
		}
	}
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("Check: %v", err)
	}
}
