package store

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestQueriesUseIndexes explains the queries that are made often.
func TestQueriesUseIndexes(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "m.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	for query, index := range map[string]string{
		"SELECT id FROM executions WHERE sandbox_id = 's' AND kind = 'job' ORDER BY created_at DESC, id DESC LIMIT 5":                                                       "executions_sandbox",
		"SELECT count(*) FROM executions WHERE sandbox_id = 's' AND " + executionLive:                                                                                       "executions_live",
		"SELECT id FROM executions WHERE ended_at > 0 AND ended_at < 9 LIMIT 5":                                                                                             "executions_ended",
		"SELECT id FROM executions WHERE " + isThere + " AND (stdout = 's' OR stderr = 's')":                                                                                "executions_stored_stderr",
		"SELECT id FROM executions WHERE ended_at > 0 AND ended_at >= 5 AND stored_by = '' ORDER BY ended_at, id LIMIT 5":                                                   "executions_ended",
		"SELECT name FROM sandboxes WHERE " + isLive:                                                                                                                        "sandboxes_live_",
		"SELECT name FROM sandboxes WHERE workspace_id = 'w' AND " + isLive + " ORDER BY created_at DESC, id DESC":                                                          "sandboxes_live_page",
		"SELECT name FROM sandboxes WHERE workspace_id = 'w' AND state IN ('running') AND " + isLive + " AND (created_at, id) < (5, 'i') ORDER BY created_at DESC, id DESC": "sandboxes_live_page",
		"SELECT id FROM sandboxes WHERE workspace_id = 'w' AND name = 'n' AND " + isNamed:                                                                                   "sandboxes_live_name",
		"SELECT id FROM sandboxes WHERE workspace_id = 'w' AND state = 'destroying' AND name = 'n' AND " + isLive + " ORDER BY created_at DESC, id DESC LIMIT 1":            "sandboxes_live_names",
		"SELECT image FROM sandboxes WHERE workspace_id = 'w' AND " + isLive + " AND name = 'n' ORDER BY created_at DESC, id DESC LIMIT 101":                                "sandboxes_live_names",
		"SELECT id FROM sandboxes WHERE workspace_id = 'w' AND name = 'n' ORDER BY created_at DESC":                                                                         "sandboxes_name",
		"SELECT id FROM sandboxes WHERE host_label = 'l'":                                                                                                                   "autoindex_sandboxes",
		"SELECT id FROM sandboxes WHERE ended_at > 0 AND ended_at < 9 LIMIT 5":                                                                                              "sandboxes_ended",
		"SELECT seq FROM events WHERE sandbox_id = 's' AND seq > 3 ORDER BY seq":                                                                                            "events_sandbox",
		"SELECT message FROM events WHERE workspace_id = 'w' AND seq > 3 AND type IN ('a', 'b') ORDER BY seq LIMIT 5":                                                       "events_workspace",
		"SELECT message FROM events WHERE workspace_id || '' = 'w' AND sandbox_id = 's' AND seq > 3 ORDER BY seq LIMIT 5":                                                   "events_sandbox",
		"SELECT max(workspace_id), max(seq) FROM events WHERE seq > 3 GROUP BY workspace_id || ''":                                                                          "PRIMARY KEY",
		quotaSandboxes: "quota_use",
		quotaPromised:  "quota_use",
		quotaSnapshots: "snapshots_page",
		"SELECT id FROM ssh_keys WHERE fingerprint = 'SHA256:a'":                                                                                      "autoindex_ssh_keys",
		"SELECT id FROM ssh_keys WHERE user_id = 'u' ORDER BY created_at DESC":                                                                        "ssh_keys_user",
		"SELECT id FROM tokens WHERE hash = 'ff'":                                                                                                     "autoindex_tokens",
		"SELECT seq FROM audit_records WHERE workspace_id = 'w' AND seq < 5 ORDER BY seq DESC LIMIT 5":                                                "audit_records_workspace",
		"SELECT seq FROM audit_words WHERE word >= 'exe' AND word < 'exf'":                                                                            "PRIMARY KEY",
		"SELECT seq FROM audit_records WHERE time >= 't' AND time < 'u' ORDER BY seq":                                                                 "audit_records_time",
		"SELECT id FROM sandboxes WHERE workspace_id = 'w' AND (created_at, id) < (5, 'i') AND state IN ('failed') ORDER BY created_at DESC, id DESC": "sandboxes_page",
	} {
		if plan := explain(t.Context(), t, s.Reader(), strings.ReplaceAll(query, "$1", "'w'")); !strings.Contains(plan, index) {
			t.Errorf("%s\nis answered by %s, want index %s", query, plan, index)
		}
	}
}

func explain(ctx context.Context, t *testing.T, db *sql.DB, query string) string {
	t.Helper()
	rows, err := db.QueryContext(ctx, "EXPLAIN QUERY PLAN "+query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer func() { _ = rows.Close() }()
	var plan []string
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		plan = append(plan, detail)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(plan)
}
