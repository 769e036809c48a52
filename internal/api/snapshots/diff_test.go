package snapshots

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// TestLateTimesAreShown: JSON has no years after 9999, but images may.
func TestLateTimesAreShown(t *testing.T) {
	for _, at := range []time.Time{time.Unix(1e9, 0), time.Unix(1<<50, 0)} {
		if text, err := json.Marshal(shownFile(sandbox.SnapshotFile{ModTime: at})); err != nil {
			t.Errorf("a file of %d is shown as %s, %v", at.Unix(), text, err)
		}
	}
}
