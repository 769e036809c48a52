package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/config"
)

func (a *app) serverCommand() *cobra.Command {
	var file string
	var flags *config.Flags
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run the server on this machine",
		Long: `Run the server. Settings come from flags, else from MODBOX_… variables, else from
the file given by --config, else from defaults; docs/configuration.md lists them.

The first start makes a token and writes it to the file "token" in the state
directory. SIGTERM and Ctrl-C end the server after the requests under way;
sandboxes keep running and are taken over by the next start.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(config.Source{File: file, Environ: a.environ, Flags: flags})
			if err != nil {
				return &exitCodeError{exitUsage, err}
			}
			s, err := start(cmd.Context(), cfg, newLogger(cfg.Log, a.stderr))
			if err != nil {
				return err
			}
			return s.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "YAML file with settings")
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

// lockState makes sure that only one server works on a state directory. The lock
// ends with the process, however it ends.
func lockState(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock state directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		holder, _ := io.ReadAll(io.LimitReader(f, 20)) // only to name it
		_ = f.Close()                                  // nothing was written
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("another server (process %s) works on %s", strings.TrimSpace(string(holder)), filepath.Dir(path))
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	if err := errors.Join(f.Truncate(0), writeAt(f, fmt.Sprintln(os.Getpid()))); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("write %s: %w", path, err)
	}
	return func() { _ = f.Close() }, nil // closing gives up the lock
}

func writeAt(f *os.File, text string) error {
	_, err := f.WriteAt([]byte(text), 0)
	return err
}

// bootstrap makes the first token and puts it into the token file. It is shown
// on a terminal only: logs keep no secrets.
func (p *parts) bootstrap(ctx context.Context, cfg config.Config, log *slog.Logger) error {
	// The file comes first: a token that could not be written would be lost.
	f, err := os.CreateTemp(cfg.StateDir, "."+tokenFile+"-*") // mode 0600
	if err != nil {
		return fmt.Errorf("make token file: %w", err)
	}
	defer os.Remove(f.Name()) // fails when it was renamed, as it should
	defer f.Close()
	token, created, err := p.auth.Bootstrap(ctx, p.store)
	if err != nil || !created {
		return err
	}
	path := filepath.Join(cfg.StateDir, tokenFile)
	if _, err := fmt.Fprintln(f, token); err != nil {
		return fmt.Errorf("write token file: %w", err)
	}
	if err := errors.Join(f.Sync(), os.Rename(f.Name(), path)); err != nil {
		return fmt.Errorf("write token file: %w", err)
	}
	log.Info("made the first token", "file", path)
	if term.IsTerminal(int(os.Stdout.Fd())) {
		fmt.Printf("Token, also in %s:\n\n  %s\n\n", path, token)
		_, user, err := p.store.EnsureDefaults(ctx)
		if err != nil {
			return err
		}
		code, err := p.accounts.ResetPassword(ctx, auth.Identity{User: user}, user)
		if err != nil {
			return err
		}
		fmt.Printf("To sign in as %s as well, choose a password within a week:\n\n  modbox login --code %s\n\n", user, code)
	}
	return nil
}
