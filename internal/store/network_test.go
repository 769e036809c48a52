package store_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/sandbox"
)

func TestNetworkAndUsageSurviveReopening(t *testing.T) {
	path := filepath.Join(t.TempDir(), "modbox.db")
	s := reopen(t, path)
	ws, _, err := s.Workspaces.EnsureDefaults(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := creation(ws, "net")
	now := time.Now().UTC().Truncate(time.Second)
	c.Sandbox.Network.Enabled, c.Sandbox.URLAccess = true, sandbox.URLKey
	c.Sandbox.Publish([]uint16{3000, 65535}, now)
	c.Sandbox.Published[1].Access = sandbox.PortPrivate
	sb := create(t, s, c)
	if diff := cmp.Diff(c.Sandbox.Network, sb.Network); diff != "" {
		t.Errorf("created (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(c.Sandbox.Published, sb.Published); diff != "" || sb.URLAccess != sandbox.URLKey {
		t.Errorf("created with access %q (-want +got):\n%s", sb.URLAccess, diff)
	}
	off := sandbox.Network{Ports: []uint16{65535, 1}}
	next := sb
	next.Publish(off.Ports, now)
	if next.Published[0] != sb.Published[1] {
		t.Errorf("a port that stays = %+v, want %+v", next.Published[0], sb.Published[1])
	}
	ev := sandbox.Event{Time: time.Now().UTC(), Type: sandbox.EventNetwork, Message: "switched"}
	change := sandbox.Change{NetworkEnabled: new(false), Published: &next.Published, TTL: new(90 * time.Second), TTLFrom: &now}
	if sb, err = s.Sandboxes.ChangeSandbox(t.Context(), sb.ID, change, ev); err != nil || !cmp.Equal(sb.Network, off) || sb.TTL != 90*time.Second || !sb.TTLFrom.Equal(now) {
		t.Errorf("ChangeSandbox() = %+v, %v", sb, err)
	}
	if u, err := s.Usage.Usage(t.Context(), sb.ID); err != nil || u != (sandbox.Usage{}) {
		t.Errorf("Usage() before the first = %+v, %v", u, err)
	}
	usage := sandbox.Usage{
		At: time.Now().UTC(), Running: time.Hour, CPU: time.Minute, MemoryByteSeconds: 1 << 60, SentBytes: 3, ReceivedBytes: 4, BoxCPU: time.Second,
	}
	if err := s.Usage.NoteUsage(t.Context(), map[sandbox.ID]sandbox.Usage{sb.ID: usage, sandbox.NewID(): usage}); err != nil {
		t.Fatal(err)
	}
	again := reopen(t, path)
	got, err := again.Sandboxes.SandboxByID(t.Context(), sb.ID)
	if diff := cmp.Diff(sb, got); err != nil || diff != "" {
		t.Errorf("after reopening (-want +got): %v\n%s", err, diff)
	}
	end(t, s, sb.ID, time.Now())
	if u, err := again.Usage.Usage(t.Context(), sb.ID); err != nil || u != usage {
		t.Errorf("Usage() after the end = %+v, %v, want %+v", u, err, usage)
	}
	events, err := again.Sandboxes.Events(t.Context(), sb.ID, sandbox.EventFilter{Limit: 10})
	if err != nil || len(events.Items) < 2 || events.Items[1].Type != sandbox.EventNetwork {
		t.Errorf("events %+v, %v", events, err)
	}
	if _, err := s.Sandboxes.ChangeSandbox(t.Context(), sb.ID, change, ev); sandbox.CodeOf(err) != sandbox.Ended {
		t.Errorf("ChangeSandbox() of an ended sandbox: %v", err)
	}
	if _, err := s.Sandboxes.ChangeSandbox(t.Context(), sandbox.NewID(), change, ev); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("ChangeSandbox() of none: %v", err)
	}
	if _, err := s.Usage.Usage(t.Context(), sandbox.NewID()); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("Usage() of none: %v", err)
	}
}
