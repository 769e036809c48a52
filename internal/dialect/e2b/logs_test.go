package e2b_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/dialect/e2b"
	"github.com/modbox/modbox/internal/sandbox"
)

// happen adds n events of a type to a sandbox, with the message "NUMBER of TYPE".
func happen(t *testing.T, s *apitest.Server, id string, typ sandbox.EventType, n int) {
	t.Helper()
	of, ok := e2b.ParseSandboxID(id)
	if !ok {
		t.Fatalf("%q is no id of a sandbox", id)
	}
	const most = 5000 // in a write, which has a time limit
	for first := 1; first <= n; first += most {
		err := s.Store.Write(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `WITH RECURSIVE numbers(n) AS (SELECT $1 UNION ALL SELECT n + 1 FROM numbers WHERE n < $2)
				INSERT INTO events (sandbox_id, workspace_id, time, type, message, data)
				SELECT s.id, s.workspace_id, (SELECT max(time) FROM events), $3, n || ' of ' || $3, '{}' FROM numbers, sandboxes s WHERE s.id = $4`,
				first, min(first+most-1, n), typ, of)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestLogsAreFilteredBeforeTheLimit: entries that match are found behind more events than the limit.
func TestLogsAreFilteredBeforeTheLimit(t *testing.T) {
	s := apitest.New(t)
	id := create(t, s, `{"templateID":"base","timeout":600}`).SandboxID
	happen(t, s, id, sandbox.EventExec, 2500)
	happen(t, s, id, sandbox.EventPauseFailed, 3)
	happen(t, s, id, sandbox.EventExec, 1200)
	for query, want := range map[string]string{
		"level=error":                            "1 of pause_failed, 2 of pause_failed, 3 of pause_failed",
		"level=warn&limit=2":                     "1 of pause_failed, 2 of pause_failed",
		"level=error&direction=backward&limit=1": "3 of pause_failed",
		"search=of+pause":                        "1 of pause_failed, 2 of pause_failed, 3 of pause_failed",
		"search=of+pause&limit=2":                "1 of pause_failed, 2 of pause_failed",
		"search=of+pause&direction=backward":     "3 of pause_failed, 2 of pause_failed, 1 of pause_failed",
		"search=2499&limit=1":                    "2499 of exec",
		"search=2499&level=error":                "",
		"search=2+of+pause&level=error&limit=1":  "2 of pause_failed",
		"search=1200+of&direction=backward":      "1200 of exec, 1200 of exec",
		"search=no-such-text&direction=backward": "",
		"level=info&limit=1&direction=backward":  "1200 of exec",
		"level=debug&limit=2&direction=backward": "1200 of exec, 1199 of exec",
	} {
		var got struct{ Logs []struct{ Message string } }
		s.Want(http.StatusOK, "GET", "/e2b/v2/sandboxes/"+id+"/logs?"+query, nil).Into(t, &got)
		var messages []string
		for _, l := range got.Logs {
			messages = append(messages, l.Message)
		}
		if strings.Join(messages, ", ") != want {
			t.Errorf("%s: %.200q, want %q", query, messages, want)
		}
	}
}

// TestLogsOfMoreThanASearchReads: entries that a search did not reach are not passed over in silence.
func TestLogsOfMoreThanASearchReads(t *testing.T) {
	s := apitest.New(t)
	id := create(t, s, `{"templateID":"base","timeout":600}`).SandboxID
	happen(t, s, id, sandbox.EventExec, 100_000)
	happen(t, s, id, sandbox.EventPauseFailed, 1)
	at := "/e2b/v2/sandboxes/" + id + "/logs?search=of+pause&limit=1"
	if a := s.Want(http.StatusBadRequest, "GET", at, nil); !strings.Contains(string(a.Body), "cursor") {
		t.Errorf("the answer does not say what to do: %s", a.Body)
	}
	for _, query := range []string{"&direction=backward", "&level=error"} {
		if a := s.Want(http.StatusOK, "GET", at+query, nil); !strings.Contains(string(a.Body), fmt.Sprint("1 of ", sandbox.EventPauseFailed)) {
			t.Errorf("%s: %.200s", query, a.Body)
		}
	}
}
