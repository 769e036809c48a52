package snapshots

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
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

// idle is a client that takes nothing, until the deadline.
type idle struct {
	http.ResponseWriter
	deadline time.Time
}

func (i *idle) SetWriteDeadline(at time.Time) error {
	i.deadline = at
	return nil
}

func (i *idle) Write([]byte) (int, error) {
	time.Sleep(time.Until(i.deadline))
	return 0, os.ErrDeadlineExceeded
}

// TestOriginalForAnIdleClient: the download of a file ends at its deadline, and requests after it have none.
func TestOriginalForAnIdleClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, w := time.Now(), &idle{ResponseWriter: httptest.NewRecorder()}
		err := sendOriginal(w, strings.NewReader("content"), 7)
		if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begin) != originalTime || !w.deadline.IsZero() {
			t.Errorf("after %s: %v; the deadline is %s", time.Since(begin), err, w.deadline)
		}
	})
}
