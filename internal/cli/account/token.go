package account

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/cli/base"
	"github.com/modbox/modbox/internal/server"
)

// NewTokenCommand returns the command "modbox token".
func NewTokenCommand(env *base.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "token", Short: "Make, list and revoke API tokens"}
	cmd.AddCommand(newTokenCreateCommand(env), newTokenListCommand(env), newTokenRevokeCommand(env), newTokenRotateFirstCommand(env), newTokenRemoveFirstCommand(env))
	return cmd
}

const (
	// tokenLifetime is how long a token works unless --expires-in says otherwise.
	tokenLifetime = 30 * 24 * time.Hour
	// allScopes is the value of --scope for a token with all permissions of its user.
	allScopes = "all"
)

// agentScopes are the scopes of a token without --scope: enough for programs that use sandboxes.
var agentScopes = []string{string(account.SandboxesWrite), string(account.ImagesWrite)}

func newTokenCreateCommand(env *base.Env) *cobra.Command {
	var options client.TokenOptions
	var stateDir, file string
	cmd := &cobra.Command{
		Use:   "create [DESCRIPTION]",
		Short: "Make a token and print it; it cannot be shown again",
		Long: `Make a token and print it; it cannot be shown again. Without flags it works for
30 days, for sandboxes, snapshots and images only. --expires-in 0 makes a token that
never expires, and --scope all a token with all permissions of its user; a warning on
standard error says so.

With --state-dir the command needs no token: it writes the new token into the database
of the server on this machine, which may be running. The token belongs to the owner of
the default workspace. This needs write access to the directory; usually that is root.
With PostgreSQL, it also needs --config or the variable MODBOX_DATABASE_URL.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			description := ""
			if len(args) > 0 {
				description = args[0]
			}
			if slices.Equal(options.Scopes, []string{allScopes}) {
				options.Scopes = nil
			}
			create := tokenMaker(env, stateDir, file)
			if stateDir == "" {
				create = func(ctx context.Context, description string, options client.TokenOptions) (*client.NewToken, error) {
					return createToken(ctx, env, description, options)
				}
			}
			t, err := create(cmd.Context(), description, options)
			if err != nil {
				return err
			}
			if missing := broad(t); missing != "" {
				fmt.Fprintln(env.Stderr, "Warning: this token "+missing)
			}
			if env.JSON {
				return env.PrintJSON(t)
			}
			_, err = fmt.Fprintln(env.Stdout, t.Secret)
			return err
		},
	}
	cmd.Flags().DurationVar(&options.Lifetime, "expires-in", tokenLifetime, "lifetime; 0 means no expiry")
	cmd.Flags().StringSliceVar(&options.Scopes, "scope", agentScopes, "permission, e.g. sandboxes:read; repeatable; all means all permissions of its user")
	cmd.Flags().BoolVar(&options.WorkspaceOnly, "workspace-only", false, "exclude its user's other workspaces")
	cmd.Flags().StringVar(&stateDir, "state-dir", "", "create it in the database of the server with this state directory, without a token")
	cmd.Flags().StringVar(&file, "config", "", "with --state-dir: the server's YAML file with settings")
	return cmd
}

// broad returns which limits a token lacks, and how to set them; "" for a token with both.
func broad(t *client.NewToken) string {
	var broad []string
	if t.ExpiresAt == nil {
		broad = append(broad, "never expires (--expires-in sets a lifetime)")
	}
	if len(t.Scopes) == 0 {
		broad = append(broad, "has all permissions of its user (--scope limits it)")
	}
	return strings.Join(broad, " and ")
}

func createToken(ctx context.Context, env *base.Env, description string, options client.TokenOptions) (*client.NewToken, error) {
	c, err := env.Client()
	if err != nil {
		return nil, err
	}
	return c.Tokens.Create(ctx, description, options)
}

// tokenMaker makes tokens in a server's own database. It does not need the server's lock: the database
// serializes the writes, and the schema stays the same.
func tokenMaker(env *base.Env, stateDir, file string) func(context.Context, string, client.TokenOptions) (*client.NewToken, error) {
	return func(ctx context.Context, description string, options client.TokenOptions) (_ *client.NewToken, err error) {
		cfg, err := (&base.LocalFlags{File: file}).Load(env)
		if err != nil {
			return nil, err
		}
		cfg.StateDir = stateDir
		st, err := server.OpenExistingStore(ctx, cfg)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, st.Close()) }()
		authenticator, err := auth.New(auth.Store{Tokens: st.Tokens, Memberships: st.Workspaces, Sessions: st.Sessions, Users: st.Users})
		if err != nil {
			return nil, err
		}
		defer authenticator.Close()
		ws, user, err := st.Workspaces.EnsureDefaults(ctx)
		if err != nil {
			return nil, err
		}
		req := auth.TokenRequest{Description: description, Lifetime: options.Lifetime, WorkspaceOnly: options.WorkspaceOnly}
		for _, scope := range options.Scopes {
			req.Scopes = append(req.Scopes, account.Permission(scope))
		}
		var secret string
		var t account.Token
		err = audit.RecordLocally(ctx, st.Audit, audit.Record{Action: "create-token", User: string(user), Workspace: string(ws)}, func(ctx context.Context) (err error) {
			secret, t, err = authenticator.CreateToken(ctx, auth.Identity{User: user, Workspace: ws}, req)
			return err
		})
		if err != nil {
			return nil, err
		}
		made := &client.NewToken{Secret: secret, Token: client.Token{
			ID: t.ID, Description: t.Description, WorkspaceID: string(t.Workspace), WorkspaceOnly: t.WorkspaceOnly, CreatedAt: t.CreatedAt,
		}}
		for _, scope := range t.Scopes {
			made.Scopes = append(made.Scopes, string(scope))
		}
		if !t.ExpiresAt.IsZero() {
			made.ExpiresAt = &t.ExpiresAt
		}
		return made, nil
	}
}

func newTokenListCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List tokens, without their secrets",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			tokens, err := c.Tokens.List().Collect(cmd.Context())
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(tokens)
			}
			var rows [][]string
			for _, t := range tokens {
				used := "never"
				if t.LastUsedAt != nil {
					used = base.Age(*t.LastUsedAt) + " ago"
				}
				rows = append(rows, []string{t.ID, t.Description, cmp.Or(strings.Join(t.Scopes, " "), "all"), base.Age(t.CreatedAt), used, base.Until(t.ExpiresAt)})
			}
			return env.PrintTable([]string{"ID", "DESCRIPTION", "SCOPES", "AGE", "USED", "EXPIRES IN"}, rows)
		},
	}
}

func newTokenRevokeCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use:               "revoke ID...",
		Short:             "Make tokens useless",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completeTokens(env),
		RunE: func(cmd *cobra.Command, ids []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			for _, id := range ids {
				if err := c.Tokens.Revoke(cmd.Context(), id); err != nil {
					return fmt.Errorf("%s: %w", id, err)
				}
			}
			return nil
		},
	}
}

// completeTokens completes ids of tokens, with their purposes.
func completeTokens(env *base.Env) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return env.Complete(cmd, func(c *client.Client) (list []cobra.Completion, err error) {
			tokens, err := c.Tokens.List().Collect(cmd.Context())
			for _, t := range tokens {
				list = append(list, cobra.CompletionWithDesc(t.ID, base.Clean(t.Description)))
			}
			return list, err
		})
	}
}
