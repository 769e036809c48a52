package client

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/modbox/modbox/client/wire"
)

// Audit has the calls for the audit log.
type Audit struct{ *transport }

// AuditEntry is a record of the audit log with its place in the chain: Hash is the
// SHA-256 over the 32 bytes of Prev and the bytes of Raw.
type AuditEntry struct {
	Seq    int64           `json:"seq"`
	Prev   string          `json:"prev"` // in hexadecimal, as Hash
	Hash   string          `json:"hash"`
	Raw    json.RawMessage `json:"record"` // the stored bytes of the record
	Record AuditRecord     `json:"-"`      // the same, decoded
}

// UnmarshalJSON implements json.Unmarshaler.
func (e *AuditEntry) UnmarshalJSON(b []byte) error {
	type plain AuditEntry
	if err := json.Unmarshal(b, (*plain)(e)); err != nil {
		return err
	}
	return json.Unmarshal(e.Raw, &e.Record)
}

// AuditRecord describes an action: its actor, object, origin and outcome.
type AuditRecord struct {
	Seq              int64             `json:"seq"`
	Time             time.Time         `json:"time"` // the time of the record, at the end of the action
	Action           string            `json:"action"`
	Outcome          string            `json:"outcome"` // "ok", "started", "cancelled", "failed", or the code of an error
	Status           int               `json:"status"`  // of HTTP
	DurationMS       int64             `json:"duration_ms"`
	RequestID        string            `json:"request_id"`
	Route            string            `json:"route"`
	Permission       string            `json:"permission"`
	UserID           string            `json:"user_id"`
	TokenID          string            `json:"token_id"`
	SessionID        string            `json:"session_id"`
	Role             string            `json:"role"`
	Administrator    bool              `json:"administrator"`
	Via              string            `json:"via"` // "sandbox-url": a caller with the URL only
	Address          string            `json:"address"`
	UserAgent        string            `json:"user_agent"`
	WorkspaceID      string            `json:"workspace_id"`
	ObjectKind       string            `json:"object_kind"`
	ObjectID         string            `json:"object_id"`
	ObjectName       string            `json:"object_name"`
	Command          []string          `json:"command"` // without secrets
	CommandTruncated bool              `json:"command_truncated"`
	Stdout           string            `json:"stdout"` // the beginning, without secrets, if the workspace has outputs recorded
	Stderr           string            `json:"stderr"`
	OutputTruncated  bool              `json:"output_truncated"`
	Details          map[string]string `json:"details"`
}

// AuditOptions filter a list of the audit log; zero values do not.
type AuditOptions struct {
	Since, Until time.Time
	User, Object string // ids; of an object also its name
	Action       string // as "exec"
	Outcome      string // as "ok"
	Search       string // words that the records have, or that words of theirs begin with
	Ascending    bool   // the oldest first
	AfterSeq     int64  // omits the records up to and including this number
	Workspace    string // an id, for ListInstallation
}

// AuditReport is the result of a verification of the audit log.
type AuditReport = wire.AuditReport

func (o AuditOptions) query() map[string]string {
	q := map[string]string{"user": o.User, "object": o.Object, "action": o.Action, "outcome": o.Outcome, "search": o.Search, "workspace": o.Workspace}
	for name, t := range map[string]time.Time{"since": o.Since, "until": o.Until} {
		if !t.IsZero() {
			q[name] = t.UTC().Format(time.RFC3339Nano)
		}
	}
	if o.AfterSeq > 0 {
		q["after_seq"] = strconv.FormatInt(o.AfterSeq, 10)
	}
	if o.Ascending {
		q["order"] = "asc"
	}
	return q
}

// List lists the records of the workspace, newest first. For owners and admins. Errors: Forbidden;
// Invalid, naming the field; Timeout when the search would take too long.
func (c *Audit) List(o AuditOptions) *List[AuditEntry] {
	o.Workspace = ""
	return newList[AuditEntry](c.transport, "/v1/audit", o.query())
}

// ListInstallation lists the records of all workspaces, and records without a workspace. For
// administrators.
func (c *Audit) ListInstallation(o AuditOptions) *List[AuditEntry] {
	return newList[AuditEntry](c.transport, "/v1/audit/installation", o.query())
}

// Verify has the server check the chain of the whole audit log. For
// administrators.
func (c *Audit) Verify(ctx context.Context) (*AuditReport, error) {
	return fetch[AuditReport](ctx, c.transport, request{method: http.MethodGet, path: "/v1/audit/verify", repeat: true})
}
