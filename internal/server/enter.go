package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"

	"gvisor.dev/gvisor/pkg/cleanup"

	"github.com/modbox/modbox/internal/backup"
	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/statedir"
)

// enter locks the directories of the server, for which a standby waits, and listens. A control server answers requests meanwhile. It returns
// the ranges of shards that the server works on.
func enter(ctx context.Context, cfg config.Config, accept bool, version string, log *slog.Logger, cu *cleanup.Cleanup) (l net.Listener, m *meanwhile, r sandbox.Ranges, err error) {
	if accept && len(cfg.Replica.Parts()) > 1 {
		return nil, nil, 0, sandbox.Errorf(sandbox.Invalid, "a server accepts a database alone: end the other servers, and start once with --accept-database and the setting replica.active 1 (MODBOX_REPLICA_ACTIVE=1)")
	}
	dirs := slices.Compact([]string{cfg.StateDir, cfg.RunDir})
	for _, dir := range dirs {
		if err := statedir.Make(dir); err != nil {
			return nil, nil, 0, err
		}
	}
	r = sandbox.AllRanges
	if cfg.Standby {
		if l, m, r, err = awaitTurn(ctx, cfg, version, log, cu); err != nil {
			return nil, nil, 0, err
		}
		dirs = nil // awaitTurn has locked them
	}
	for _, dir := range dirs {
		unlock, err := statedir.Lock(ctx, dir, cfg.StateDir)
		if err != nil {
			return nil, nil, 0, err
		}
		cu.Add(unlock)
	}
	if err := beforeOthers(ctx, cfg, func() error { return tidyStart(cfg, r) }); err != nil {
		return nil, nil, 0, err
	}
	if l != nil {
		return l, m, r, nil
	}
	// The address comes first: without it nothing else should happen.
	if l, err = listen(cfg, log, cu); err != nil || cfg.Role != config.RoleControl || len(cfg.TLS.ACME.Hosts) > 0 {
		return l, nil, r, err
	}
	m, err = answerMeanwhile(cfg, l, nil, log, cu) // its start waits for a worker
	return l, m, r, err
}

// beforeOthers calls f while no other server that starts does.
func beforeOthers(ctx context.Context, cfg config.Config, f func() error) error {
	if len(cfg.Replica.Parts()) == 1 { // it is alone
		return f()
	}
	return statedir.Alone(ctx, cfg.StateDir, f)
}

// tidyStart ends what servers before have left undone in the state directory. If several servers are active, the server of the first range
// shows its address.
func tidyStart(cfg config.Config, r sandbox.Ranges) error {
	if err := backup.Finish(cfg.StateDir); err != nil {
		return err
	}
	if !r.HasRange(0) {
		return nil
	}
	if err := os.Remove(filepath.Join(cfg.StateDir, statedir.AddressFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the address of the server before: %w", err)
	}
	return nil
}

// listen listens for clients.
func listen(cfg config.Config, log *slog.Logger, cu *cleanup.Cleanup) (net.Listener, error) {
	l, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, err
	}
	cu.Add(func() { _ = l.Close() }) // closed already when it was served
	return l, checkExposure(cfg, l.Addr(), log)
}
