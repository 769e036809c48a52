package server

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/driver/gvisor"
	"github.com/modbox/modbox/internal/driver/gvisor/platform"
	"github.com/modbox/modbox/internal/embedded"
	"github.com/modbox/modbox/internal/statedir"
)

// choosePlatform chooses gVisor's platform of new sandboxes, unless the worker has.
func (p *parts) choosePlatform(ctx context.Context, cfg config.Config, log *slog.Logger) (err error) {
	if d, ok := p.driver.(*gvisor.Driver); !ok {
		p.platform = platform.Choice{Platform: platform.Name(p.driver.Capabilities().Platform), Reason: "the worker chose it"}
	} else {
		p.platform, _ = withSpace(p.disk, func() (choice platform.Choice, full error) {
			if choice, err = d.ChoosePlatform(ctx, cfg.Sandbox.Platform); choice.Full {
				full = unix.ENOSPC
			}
			return choice, full
		})
		if err != nil {
			return err
		}
	}
	level := slog.LevelInfo
	if p.platform.Failed {
		level = slog.LevelWarn
	}
	log.Log(ctx, level, "platform of new sandboxes", "platform", p.platform.Platform, "reason", p.platform.Reason)
	used := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "modbox_platform", Help: "1 for gVisor's platform that runs new sandboxes, 0 for the others.",
	}, []string{"platform"})
	for _, name := range []platform.Name{platform.Systrap, platform.KVM} {
		used.WithLabelValues(string(name)).Set(0)
	}
	used.WithLabelValues(string(p.platform.Platform)).Set(1)
	return p.metrics.Register(used)
}

// LookUpPlatform returns gVisor's platform of new sandboxes with the settings, and whether it is known before the start of a
// server. It tries nothing. Errors: KVM is set and does not work.
func LookUpPlatform(cfg config.Config) (platform.Choice, bool, error) {
	var programs embedded.Paths
	if _, err := os.Stat(filepath.Join(cfg.StateDir, platform.RecordName)); err == nil { // else nothing is made in the directory
		if programs, err = embedded.Unpack(filepath.Join(cfg.StateDir, statedir.BinDir)); err != nil {
			return platform.Choice{}, false, err
		}
	}
	return platform.New(cfg.StateDir, programs.Sandbox).Look(cfg.Sandbox.Platform)
}
