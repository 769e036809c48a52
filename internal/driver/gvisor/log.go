package gvisor

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	gvlog "gvisor.dev/gvisor/pkg/log"
)

// logTarget logs the messages of gVisor's library as debug messages: the library does not know
// which of its failures matter here; the driver's own errors report those.
type logTarget struct{ logger *slog.Logger }

// Emit implements gVisor's log.Emitter.
func (t logTarget) Emit(_ int, level gvlog.Level, _ time.Time, format string, args ...any) {
	if t.logger.Enabled(context.Background(), slog.LevelDebug) {
		t.logger.Debug("gvisor: "+fmt.Sprintf(format, args...), "gvisor_level", level.String())
	}
}
