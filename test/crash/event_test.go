package crash_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// TestEventsAcrossKills checks that a client that follows the events of the workspace has each of
// them once and in order, although the server is killed and stopped under it.
func TestEventsAcrossKills(t *testing.T) {
	s := testserver.StartSmall(t)
	s.SetArgs("--listen", strings.TrimPrefix(s.URL, "http://")) // where the client connects again
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	type seen struct {
		seqs []int64
		err  error
	}
	followed := make(chan seen, 1)
	feed := s.Client.Events
	go func() {
		var got seen
		for e, err := range feed.Follow(ctx, client.FollowOptions{Since: time.Unix(0, 0)}) {
			if got.err = err; err != nil {
				break
			}
			got.seqs = append(got.seqs, e.Seq)
			if e.SandboxName == "last" && e.Type == "destroyed" {
				break
			}
		}
		followed <- got
	}()
	for i, name := range []string{"first", "second", "last"} {
		sb := s.MustCreate(client.CreateOptions{Name: name, Image: "modbox/base"})
		s.Bash(sb.ID, "true", time.Minute)
		if i == 0 {
			s.Kill()
			s.Launch()
		} else if i == 1 {
			s.Stop()
			s.Launch()
		}
		if _, err := s.Sandboxes.Delete(ctx, sb.ID); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Sandboxes.Wait(ctx, "last", client.Destroyed); err != nil {
		t.Fatal(err)
	}
	got := <-followed
	if got.err != nil {
		t.Fatalf("after %d events: %v", len(got.seqs), got.err)
	}
	all, err := s.Client.Events.List(client.EventFilter{}).Collect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var want []int64
	for _, e := range all {
		want = append(want, e.Seq)
	}
	// An event after the last destroyed may have come.
	if len(got.seqs) < 12 || len(got.seqs) > len(want) || !slices.Equal(got.seqs, want[:len(got.seqs)]) {
		t.Errorf("the client has the events %v, and the server %v", got.seqs, want)
	}
}
