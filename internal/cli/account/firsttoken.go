package account

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/cli/base"
	"github.com/modbox/modbox/internal/durable"
	"github.com/modbox/modbox/internal/server"
	"github.com/modbox/modbox/internal/statedir"
	"github.com/modbox/modbox/internal/store"
)

func newTokenRotateFirstCommand(env *base.Env) *cobra.Command {
	var local base.LocalFlags
	var lifetime time.Duration
	cmd := &cobra.Command{
		Use:   "rotate-first",
		Short: "Replace the first token of the server on this machine",
		Long: `Replace the first token of the server on this machine, which lies in the file
"token" in its state directory: the old one is revoked, the new one is written there.
It needs no token, only the right to write the state directory, and the server may run:
it refuses the old token within 5 seconds.

Without --expires-in the new token does not expire either. When people sign in by name,
remove it with "modbox token remove-first".`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if lifetime < 0 {
				return base.UsageError("--expires-in must not be negative")
			}
			return withFirstToken(cmd.Context(), env, &local, func(f *firstToken) error { return f.rotate(cmd.Context(), lifetime) })
		},
	}
	cmd.Flags().DurationVar(&lifetime, "expires-in", 0, "how long the new one works (default: for ever)")
	local.Add(cmd)
	return cmd
}

func newTokenRemoveFirstCommand(env *base.Env) *cobra.Command {
	var local base.LocalFlags
	cmd := &cobra.Command{
		Use:   "remove-first",
		Short: "Revoke the first token of the server on this machine",
		Long: `Revoke the first token of the server on this machine and remove the file "token"
from its state directory. The server may run: it refuses the token within 5 seconds, and
makes no other at the next start. "modbox token rotate-first" makes another.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withFirstToken(cmd.Context(), env, &local, func(f *firstToken) error { return f.remove(cmd.Context()) })
		},
	}
	local.Add(cmd)
	return cmd
}

// firstToken is the first token of a state directory, with its database.
type firstToken struct {
	dir  string
	st   *store.Store
	auth *auth.Authenticator
}

func withFirstToken(ctx context.Context, env *base.Env, local *base.LocalFlags, do func(*firstToken) error) (err error) {
	cfg, err := local.Load(env)
	if err != nil {
		return err
	}
	st, err := server.OpenExistingStore(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	authenticator, err := auth.New(auth.Store{Tokens: st.Tokens, Memberships: st.Workspaces, Sessions: st.Sessions, Users: st.Users})
	if err != nil {
		return err
	}
	defer authenticator.Close()
	return do(&firstToken{cfg.StateDir, st, authenticator})
}

// rotate revokes the token before it makes the next. Interrupted in between, it leaves no valid
// token outside a file.
func (f *firstToken) rotate(ctx context.Context, lifetime time.Duration) error {
	_, err := statedir.WriteSecret(f.dir, statedir.TokenFile, func() (secret string, _ bool, err error) {
		if err := f.revoke(ctx); err != nil {
			return "", false, err
		}
		ws, user, err := f.st.Workspaces.EnsureDefaults(ctx)
		if err != nil {
			return "", false, err
		}
		err = audit.RecordLocally(ctx, f.st.Audit, audit.Record{Action: "create-token", User: string(user), Workspace: string(ws)}, func(ctx context.Context) error {
			secret, _, err = f.auth.CreateToken(ctx, auth.Identity{User: user, Workspace: ws}, auth.TokenRequest{Description: "first token", Lifetime: lifetime})
			return err
		})
		return secret, true, err
	})
	return err
}

// remove revokes the token before it removes the file, which identifies the token.
func (f *firstToken) remove(ctx context.Context) error {
	if err := f.revoke(ctx); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(f.dir, statedir.TokenFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the first token: %w", err)
	}
	return durable.Sync(f.dir)
}

// revoke revokes the token in the file, if the database has it.
func (f *firstToken) revoke(ctx context.Context) error {
	t, err := server.ReadFirstToken(ctx, f.dir, f.st)
	if err != nil || t == nil {
		return err
	}
	return audit.RecordLocally(ctx, f.st.Audit, audit.Record{Action: "revoke-token", User: string(t.User), Workspace: string(t.Workspace)}, func(ctx context.Context) error {
		return f.auth.RevokeToken(ctx, auth.Identity{User: t.User, Workspace: t.Workspace}, t.ID)
	})
}
