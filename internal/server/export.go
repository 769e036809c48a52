package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
	"gvisor.dev/gvisor/pkg/cleanup"

	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/otlp"
	"github.com/modbox/modbox/internal/tracing"
)

// exportTimeout bounds each of the exports of the last spans, metrics and entries of the log, which follow one another when
// the server ends. With http.drain_timeout and closeTimeout they fit into TimeoutStopSec of the systemd unit.
const exportTimeout = 5 * time.Second

// openLog returns a log that is also sent to the receiver of the settings, if they name one. Its entries wait until the
// installation is known.
func (p *parts) openLog(ctx context.Context, cfg config.Config, log *slog.Logger, cu *cleanup.Cleanup) (*slog.Logger, error) {
	if cfg.Log.Endpoint == "" {
		return log, nil
	}
	to, err := p.receiver("log", cfg.Log.Endpoint, cfg.Log.HeadersFile, log)
	if err != nil {
		return nil, err
	}
	if p.logs, err = otlp.NewLogs(to); err != nil {
		return nil, err
	}
	closeExport(ctx, cu, log, "entries of the log", p.logs.Close)
	return slog.New(p.logs.Handler(log.Handler())), nil
}

// openTraces begins to export traces, if the settings name a receiver.
func (p *parts) openTraces(ctx context.Context, cfg config.Config, log *slog.Logger, cu *cleanup.Cleanup) error {
	if cfg.Traces.Endpoint == "" {
		return nil
	}
	to, err := p.receiver("traces", cfg.Traces.Endpoint, cfg.Traces.HeadersFile, log)
	if err != nil {
		return err
	}
	e, err := otlp.NewTraces(ctx, to, float64(cfg.Traces.Percent)/100)
	if err != nil {
		return err
	}
	closeExport(ctx, cu, log, "traces", e.Close)
	p.metrics.MustRegister(e.Collectors()...)
	p.traces = e.Tracer()
	return nil
}

// openMetrics begins to export metrics, if the settings name a receiver. It also registers the metrics of the log's export.
func (p *parts) openMetrics(ctx context.Context, cfg config.Config, log *slog.Logger, cu *cleanup.Cleanup) error {
	if p.logs != nil {
		p.metrics.MustRegister(p.logs.Collectors()...)
	}
	if cfg.Metrics.Endpoint == "" {
		return nil
	}
	to, err := p.receiver("metrics", cfg.Metrics.Endpoint, cfg.Metrics.HeadersFile, log)
	if err != nil {
		return err
	}
	e, err := otlp.NewMetrics(to, p.metrics, time.Duration(cfg.Metrics.Interval))
	if err != nil {
		return err
	}
	closeExport(ctx, cu, log, "metrics", e.Close)
	p.metrics.MustRegister(e.Collectors()...)
	return nil
}

// receiver returns the receiver of a part of the settings.
func (p *parts) receiver(part, endpoint, headersFile string, log *slog.Logger) (otlp.Receiver, error) {
	header, err := readHeaders(headersFile)
	if err != nil {
		return otlp.Receiver{}, fmt.Errorf("%s.headers_file: %w", part, err)
	}
	return otlp.Receiver{Endpoint: endpoint, Header: header, Version: p.version, Instance: p.instance, Log: log}, nil
}

// closeExport has the last data exported when the server ends.
func closeExport(ctx context.Context, cu *cleanup.Cleanup, log *slog.Logger, what string, end func(context.Context) error) {
	cu.Add(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), exportTimeout)
		defer cancel()
		if err := end(ctx); err != nil {
			log.Warn("the last "+what+" were not sent", "error", err)
		}
	})
}

// observeCall begins the span of a call to an agent. Its name has only the first part of the path, because the
// rest can contain ids.
func observeCall(ctx context.Context, method, path string) (traceparent string, end func(error)) {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return tracing.Call(ctx, "agent: "+method+" /"+first)
}

// readHeaders reads lines NAME: VALUE. It returns none for the path "".
func readHeaders(path string) (http.Header, error) {
	header := http.Header{}
	if path == "" {
		return header, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		if !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return nil, fmt.Errorf("line %d is not NAME: VALUE", n) // without the line, which may be a secret
		}
		header.Add(name, value)
	}
	if lines.Err() != nil {
		return nil, errors.New("a line is too long")
	}
	return header, nil
}
