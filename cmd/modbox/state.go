package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/durable"
	"github.com/modbox/modbox/internal/sandbox"
)

func (a *app) serverCommand() *cobra.Command {
	var file string
	var accept bool
	var flags *config.Flags
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run the server on this machine",
		Long: `Run the server. Settings come from flags, else from MODBOX_… variables, else from
the file given by --config, else from defaults; docs/configuration.md lists them.

The first start makes a token and writes it to the file "token" in the state
directory, and to the file "first-login" a code with which the first user may
choose a password (modbox login --code), until somebody has. SIGTERM and Ctrl-C
end the server after the requests under way; sandboxes keep running and are taken
over by the next start.

A start is refused when the database is missing, older than the files beside it, or
another server's: sandboxes that it does not know would end. --accept-database goes on
with it, once.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(config.Source{File: file, Environ: a.environ, Flags: flags})
			if err != nil {
				return &exitCodeError{exitUsage, err}
			}
			s, err := start(cmd.Context(), cfg, accept, newLogger(cfg.Log, a.stderr))
			if err != nil {
				return err
			}
			return s.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "YAML file with settings")
	cmd.Flags().BoolVar(&accept, "accept-database", false, "go on with a database that does not fit the files beside it; give it once")
	flags = config.AddFlags(cmd.Flags())
	return cmd
}

func newLogger(cfg config.Log, w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(cfg.Level)) // config has checked it
	o := &slog.HandlerOptions{Level: level}
	if cfg.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// bootstrap makes the first token and a code for the first sign-in, and puts them
// into files. They are shown on a terminal only: logs keep no secrets.
func (p *parts) bootstrap(ctx context.Context, cfg config.Config, log *slog.Logger) error {
	var token string
	made, err := writeSecret(cfg.StateDir, tokenFile, func() (_ string, created bool, err error) {
		token, created, err = p.auth.Bootstrap(ctx, p.store)
		return token, created, err
	})
	if err != nil || !made {
		return err
	}
	_, user, err := p.store.EnsureDefaults(ctx)
	if err != nil {
		return err
	}
	var code string
	if _, err := writeSecret(cfg.StateDir, firstLoginFile, func() (_ string, _ bool, err error) {
		code, err = p.accounts.ResetPassword(ctx, auth.Identity{User: user}, user)
		return code, true, err
	}); err != nil {
		return err
	}
	tokenPath, codePath := filepath.Join(cfg.StateDir, tokenFile), filepath.Join(cfg.StateDir, firstLoginFile)
	log.Info("made the first token, and a code with which its user may choose a password within a week: modbox login --code", "token_file", tokenPath, "code_file", codePath, "user", user)
	if term.IsTerminal(int(os.Stdout.Fd())) {
		fmt.Printf("Token, also in %s:\n\n  %s\n\n", tokenPath, token)
		fmt.Printf("To sign in as %s as well, choose a password within a week:\n\n  modbox login --code %s\n\n", user, code)
	}
	return nil
}

// writeSecret writes a line, unless there is none, to a file that only this user
// can read. The file is there before the secret: one that cannot be written is not made.
func writeSecret(dir, name string, secret func() (string, bool, error)) (made bool, err error) {
	f, err := os.CreateTemp(dir, "."+name+"-*") // mode 0600
	if err != nil {
		return false, fmt.Errorf("make file %s: %w", name, err)
	}
	defer os.Remove(f.Name()) // fails when it was renamed, as it should
	defer f.Close()
	text, made, err := secret()
	if err != nil || !made {
		return false, err
	}
	if _, err := fmt.Fprintln(f, text); err != nil {
		return false, fmt.Errorf("write file %s: %w", name, err)
	}
	if err := giveToOwner(f, dir); err != nil {
		return false, fmt.Errorf("write file %s: %w", name, err)
	}
	if err := f.Sync(); err != nil {
		return false, fmt.Errorf("write file %s: %w", name, err)
	}
	if err := os.Rename(f.Name(), filepath.Join(dir, name)); err != nil {
		return false, fmt.Errorf("write file %s: %w", name, err)
	}
	if err := durable.Sync(dir); err != nil {
		return false, fmt.Errorf("write file %s: %w", name, err)
	}
	return true, nil
}

// giveToOwner gives a file that root makes to the user whose directory it is in: the server may
// run as another user than its administrator's commands.
func giveToOwner(f *os.File, dir string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return err
	}
	return f.Chown(int(st.Uid), int(st.Gid))
}

// forgetFirstLogin returns what removes the code for the first sign-in once its user has signed in.
func (p *parts) forgetFirstLogin(ctx context.Context, cfg config.Config, log *slog.Logger) (func(sandbox.UserID), error) {
	_, first, err := p.store.EnsureDefaults(ctx)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(cfg.StateDir, firstLoginFile)
	return func(user sandbox.UserID) {
		if user != first {
			return
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			log.Error("remove the code for the first sign-in", "file", path, "error", err)
		}
	}, nil
}
