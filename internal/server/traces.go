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
	"github.com/modbox/modbox/internal/tracing"
	"github.com/modbox/modbox/internal/tracing/otlp"
)

// tracesTimeout bounds the export of the last spans when the server ends.
const tracesTimeout = 5 * time.Second

// openTraces begins to export traces, if the settings name a receiver.
func (p *parts) openTraces(ctx context.Context, cfg config.Config, log *slog.Logger, cu *cleanup.Cleanup) error {
	if cfg.Traces.Endpoint == "" {
		return nil
	}
	header, err := readHeaders(cfg.Traces.HeadersFile)
	if err != nil {
		return fmt.Errorf("traces.headers_file: %w", err)
	}
	e, err := otlp.New(ctx, otlp.Config{
		Endpoint: cfg.Traces.Endpoint, Ratio: float64(cfg.Traces.Percent) / 100, Header: header, Version: p.version, Log: log,
	})
	if err != nil {
		return err
	}
	cu.Add(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tracesTimeout)
		defer cancel()
		if err := e.Close(ctx); err != nil {
			log.Warn("the last traces were not sent", "error", err)
		}
	})
	p.metrics.MustRegister(e.Collectors()...)
	p.traces = e.Tracer()
	return nil
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
