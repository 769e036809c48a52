package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/term"

	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/statedir"
)

// bootstrap creates the first token and a code for the first sign-in, and writes them to files. It
// prints them only to a terminal, because logs must not contain secrets.
func (p *parts) bootstrap(ctx context.Context, cfg config.Config, log *slog.Logger) error {
	return beforeOthers(ctx, cfg, func() error { return p.makeFirst(ctx, cfg, log) })
}

// makeFirst is bootstrap for the only server that starts.
func (p *parts) makeFirst(ctx context.Context, cfg config.Config, log *slog.Logger) error {
	var token string
	made, err := statedir.WriteSecret(cfg.StateDir, statedir.TokenFile, func() (_ string, created bool, err error) {
		token, created, err = p.Auth.Bootstrap(ctx, p.store.Workspaces)
		return token, created, err
	})
	if err != nil || !made {
		return err
	}
	_, user, err := p.store.Workspaces.EnsureDefaults(ctx)
	if err != nil {
		return err
	}
	var code string
	if _, err := statedir.WriteSecret(cfg.StateDir, statedir.FirstLoginFile, func() (_ string, _ bool, err error) {
		code, err = p.Accounts.ResetPassword(ctx, auth.Identity{User: user}, user)
		return code, true, err
	}); err != nil {
		return err
	}
	tokenPath, codePath := filepath.Join(cfg.StateDir, statedir.TokenFile), filepath.Join(cfg.StateDir, statedir.FirstLoginFile)
	log.Info("made the first token, and a code with which its user may choose a password within a week: modbox login --code", "token_file", tokenPath, "code_file", codePath, "user", user)
	if term.IsTerminal(int(os.Stdout.Fd())) {
		fmt.Printf("Token, also in %s:\n\n  %s\n\n", tokenPath, token)
		fmt.Printf("To sign in as %s as well, choose a password within a week:\n\n  modbox login --code %s\n\n", user, code)
	}
	return nil
}

// forgetFirstLogin returns a function that removes the code for the first sign-in once its user has
// signed in.
func (p *parts) forgetFirstLogin(ctx context.Context, cfg config.Config, log *slog.Logger) (func(sandbox.UserID), error) {
	_, first, err := p.store.Workspaces.EnsureDefaults(ctx)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(cfg.StateDir, statedir.FirstLoginFile)
	return func(user sandbox.UserID) {
		if user != first {
			return
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			log.Error("remove the code for the first sign-in", "file", path, "error", err)
		}
	}, nil
}
