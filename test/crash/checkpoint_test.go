package crash_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/quarantine"
	"github.com/modbox/modbox/test/testserver"
)

// wantNothingQuarantined fails the test when saved states are in quarantine.
func wantNothingQuarantined(t *testing.T, s *testserver.Server) {
	t.Helper()
	list, err := quarantine.New(filepath.Join(s.StateDir, "quarantine")).List()
	if err != nil || len(list) > 0 {
		t.Errorf("in quarantine: %+v, %v, want nothing", list, err)
	}
}

// TestKillBetweenFilesAndRow kills the server when the files of a named checkpoint, or the
// copy that a restore makes, have just got their name. The next server removes what no row
// has: nothing goes to quarantine.
func TestKillBetweenFilesAndRow(t *testing.T) {
	s := testserver.StartSmall(t)
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/base", Resources: client.Resources{Memory: "128Mi", Disk: "64Mi", CPU: "500m"}})
	if res := s.Bash(sb.ID, "head -c 8M /dev/urandom > /tmp/data", time.Minute); res.ExitCode != 0 {
		t.Fatalf("write: %+v", res)
	}
	if _, err := s.Sandboxes.Checkpoints.Create(t.Context(), sb.ID, "first"); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(s.StateDir, "checkpoints", sb.ID)
	recorded := func() (ids []string) {
		t.Helper()
		list, err := s.Sandboxes.Checkpoints.List(sb.ID).Collect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range list {
			ids = append(ids, c.ID)
		}
		slices.Sort(ids)
		return ids
	}
	const rounds = 6
	for round := range rounds {
		before := recorded()
		done := make(chan struct{})
		go func() {
			defer close(done)
			if round%2 == 0 {
				_, _ = s.Sandboxes.Checkpoints.Create(t.Context(), sb.ID, fmt.Sprint("round", round)) // the server is killed under it
			} else {
				_, _ = s.Sandboxes.Checkpoints.Restore(t.Context(), sb.ID, "first")
			}
		}()
		unrecorded := func() bool {
			entries, err := os.ReadDir(dir)
			return err == nil && slices.ContainsFunc(entries, func(e os.DirEntry) bool {
				return len(e.Name()) == len(sb.ID) && !slices.Contains(before, e.Name())
			})
		}
		for deadline := time.Now().Add(5 * time.Minute); !unrecorded(); {
			if time.Now().After(deadline) {
				t.Fatalf("round %d: no files appear in %s", round, dir)
			}
		}
		s.Kill()
		<-done
		s.Launch()
		if res := s.Bash(sb.ID, "wc -c /tmp/data", time.Minute); res.ExitCode != 0 { // resumes it when it is paused
			t.Errorf("round %d: %+v", round, res)
		}
		until(t, "only recorded checkpoints to be in "+dir, func() bool {
			var have []string
			entries, err := os.ReadDir(dir)
			for _, e := range entries {
				have = append(have, e.Name())
			}
			return err == nil && slices.Equal(have, recorded())
		})
		wantNothingQuarantined(t, s)
	}
}
