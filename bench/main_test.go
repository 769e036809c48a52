package main

import (
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/bench"
)

// A row that is compared with the wrong command of Docker has a ratio that says nothing.
func TestPeersStandBesideTheirRows(t *testing.T) {
	want := map[string]string{
		"cold create → first output": "docker run --rm",
		"create from the pool":       "docker run --rm",
		"create from a new snap":     "docker run --rm",
		"`true` in a running":        "docker exec",
		"`python3 -c":                "Docker API: exec",
		"destroy":                    "Docker API: remove",
		"50 creates at once":         "Docker API: create, start, exec",
		"file of 100 MiB in":         "docker cp",
		"file of 100 MiB out":        "docker cp",
		"`modbox run`":               "docker run --rm",
		"`modbox exec`":              "docker exec",
		"resume a paused sandbox":    "docker run --rm of Python",
		"pause that sandbox":         "",
		"`1+1` in a warm Python co":  "Modbox API: exec of `true` there",
	}
	found := 0
	for _, l := range lines(options{burst: 50}, &bench.Server{}, &docker{}, "c", bench.Fixtures{}) {
		if l.Task != "" && l.Peer == "" {
			t.Errorf("%s: task %q has no peer", l.What, l.Task)
		}
		for prefix, peer := range want {
			if strings.HasPrefix(l.What, prefix) {
				found++
				if l.Peer != peer {
					t.Errorf("%s: compared with %q, want %q", l.What, l.Peer, peer)
				}
			}
		}
	}
	if found != len(want) {
		t.Errorf("%d of %d rows were found", found, len(want))
	}
}
