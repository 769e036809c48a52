package bench

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/modbox/modbox/client"
)

// ticker is a Python program with a heap of 50 MB that ticks every millisecond. On
// SIGUSR1 it writes its longest gap so far, in microseconds, and forgets it.
//
//go:embed ticker.py
var ticker string

// The targets of a fork of a sandbox with a heap of 50 MB: how long the sandbox stands still, and the time until the copy has answered.
const (
	targetStandstill = 30 * time.Millisecond
	targetForked     = 130 * time.Millisecond
)

// HeapPython makes a sandbox in which ticker runs.
func (m *Server) HeapPython(ctx context.Context) (string, error) {
	id, err := m.Start(ctx)
	if err != nil {
		return id, err
	}
	if err := m.c.Sandboxes.Files.WriteMany(ctx, id, []client.File{{Path: "/tmp/ticker.py", Content: []byte(ticker)}}); err != nil {
		return id, err
	}
	return id, m.exec(ctx, id, "bash", "-c", "setsid nohup python3 /tmp/ticker.py >/tmp/ticker.log 2>&1 & for i in {1..1000}; do [ -e /tmp/ticker.pid ] && exit; sleep 0.01; done; cat /tmp/ticker.log >&2; exit 1")
}

// gap returns the ticker's longest gap since it was asked last.
func (m *Server) gap(ctx context.Context, id string) (time.Duration, error) {
	res, err := m.c.Sandboxes.Exec(ctx, id, client.Command{Argv: []string{
		"bash", "-c", "rm -f /tmp/gap; kill -USR1 $(cat /tmp/ticker.pid); for i in {1..1000}; do [ -e /tmp/gap ] && exec cat /tmp/gap; sleep 0.01; done; exit 1",
	}})
	if err != nil {
		return 0, err
	}
	micros, err := strconv.ParseInt(strings.TrimSpace(string(res.Stdout)), 10, 64)
	if err != nil || res.ExitCode != 0 {
		return 0, fmt.Errorf("the ticker does not answer: exit code %d: %s", res.ExitCode, res.Stderr)
	}
	return time.Duration(micros) * time.Microsecond, nil
}

// quiet is for how long the ticker's own gaps are watched.
const quiet = time.Second

// Standstill measures how much longer the ticker's longest gap is while its sandbox
// is forked than without: asking it, whose commands disturb it, is in both.
func (m *Server) Standstill(id string) Op {
	return func(ctx context.Context) (time.Duration, error) {
		if _, err := m.gap(ctx, id); err != nil {
			return 0, err
		}
		select {
		case <-time.After(quiet):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		own, err := m.gap(ctx, id)
		if err != nil {
			return 0, err
		}
		forked, err := m.c.Sandboxes.Fork(ctx, id, client.ForkOptions{Count: 1, TTL: ttl})
		if err != nil {
			return 0, err
		}
		longest, err := m.gap(ctx, id)
		for _, f := range forked {
			if f.Err != nil {
				return 0, errors.Join(err, f.Err)
			}
			err = errors.Join(err, m.Remove(ctx, f.Sandbox.ID))
		}
		return max(0, longest-own), err
	}
}

// AddStandstill measures forks of a sandbox with a heap.
func (r *Report) AddStandstill(ctx context.Context, rounds int, m *Server) error {
	id, err := m.HeapPython(ctx)
	if id != "" {
		defer m.Remove(context.WithoutCancel(ctx), id) //nolint:errcheck // its ttl ends it otherwise
	}
	if err != nil {
		return err
	}
	if err := r.Add(ctx, rounds, Line{What: "fork one with a heap of 50 MB → the copy has answered, API", Ours: m.Fork(id, 1)}); err != nil {
		return err
	}
	got, err := Alternate(ctx, rounds, Side{Name: "modbox", Run: m.Standstill(id)})
	if err != nil {
		return err
	}
	forked := Quantile(r.Rows[len(r.Rows)-1].Ours.Samples, .5)
	still, worst := Quantile(got[0].Samples, .5), Quantile(got[0].Samples, 1)
	r.Facts = append(r.Facts, Fact{
		What: "fork one with a heap of 50 MB → the copy has answered, p50", Ours: Milliseconds(forked),
		Target: "≤ " + Milliseconds(targetForked), Met: forked <= targetForked,
	}, Fact{
		What: "standstill of that one while it is forked, p50 and worst", Ours: Milliseconds(still) + ", " + Milliseconds(worst),
		Target: "p50 ≤ " + Milliseconds(targetStandstill), Met: still <= targetStandstill,
	})
	return nil
}
