package operator

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/doctor"
	"github.com/modbox/modbox/internal/driver/gvisor"
	"github.com/modbox/modbox/internal/embedded"
	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/server"
	"github.com/modbox/modbox/internal/statedir"
)

// trySandbox starts a sandbox with a driver of its own, in directories of its own below the
// server's, so that it does not disturb a running server.
func trySandbox(ctx context.Context, cfg config.Config) (t doctor.Trial, err error) {
	st, err := server.OpenExistingImages(cfg)
	if err != nil {
		return t, err
	}
	rootFS, err := anyRootFS(ctx, st)
	if err != nil {
		return t, err
	}
	programs, err := embedded.Unpack(filepath.Join(cfg.StateDir, statedir.BinDir))
	if err != nil {
		return t, err
	}
	if err := statedir.Make(cfg.RunDir); err != nil {
		return t, err
	}
	runDir, err := os.MkdirTemp(cfg.RunDir, "d")
	if err != nil {
		return t, err
	}
	defer os.RemoveAll(runDir)
	stateDir, err := os.MkdirTemp(cfg.StateDir, "doctor-")
	if err != nil {
		return t, err
	}
	defer os.RemoveAll(stateDir)
	choice, _, err := server.LookUpPlatform(cfg)
	if err != nil {
		return t, err
	}
	d, err := gvisor.New(gvisor.Config{
		RunDir: runDir, StateDir: stateDir, SandboxBinary: programs.Sandbox, AgentBinary: programs.Agent, Platform: choice.Platform,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return doctor.TrySandbox(ctx, d, rootFS)
}

// anyRootFS returns the smallest built image.
func anyRootFS(ctx context.Context, st *image.Store) (string, error) {
	smallest, err := smallestImage(ctx, st, func(spec.Image) bool { return true })
	if err != nil {
		return "", err
	}
	if smallest == nil {
		return "", server.ErrNoImage
	}
	_, path, err := st.Resolve(ctx, smallest.Ref())
	return path, err
}
