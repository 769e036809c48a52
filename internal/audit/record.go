package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// Outcomes in addition to the codes of errors.
const (
	// OK is the outcome of successful operations.
	OK = "ok"
	// Started is the outcome in the record of a start; the end has a record with the same request
	// ID.
	Started = "started"
	// Cancelled is the outcome when the client went away.
	Cancelled = "cancelled"
	// Interrupted is the outcome when the end or death of the server cut the operation off: whether
	// it was done is unknown.
	Interrupted = "interrupted"
	// Failed is the outcome when the answer was an error without a code.
	Failed = "failed"
)

// Record is one entry of the log.
type Record struct {
	Seq     int64  `json:"seq" doc:"Its number, without gaps in the whole log."`
	Time    string `json:"time" format:"date-time" doc:"When it was made."` // when the record was made, as [TimeFormat]
	Action  string `json:"action" doc:"What was asked for: the operation of this document, or the name of an action of the server."`
	Outcome string `json:"outcome" doc:"ok, started, cancelled, interrupted, failed, or the code of the error."` // OK, Started, Cancelled, Interrupted, Failed, or the code of the error
	Status  int    `json:"status,omitempty" doc:"The HTTP status; absent when there was no request."`
	// DurationMS is how long it took.
	DurationMS int64  `json:"duration_ms" doc:"Milliseconds that it took."`
	RequestID  string `json:"request_id,omitempty" doc:"The id of the request, as in the header X-Request-Id."`
	Route      string `json:"route,omitempty" doc:"The route of the request."`
	Permission string `json:"permission,omitempty" doc:"The permission that the route needs."` // required by the route

	// The user. For a request to a sandbox's own URL there is no user, but Via.
	User      string `json:"user_id,omitempty" doc:"The user who asked."`
	Token     string `json:"token_id,omitempty" doc:"The API token that was presented."`
	Session   string `json:"session_id,omitempty" doc:"The session that was presented."`
	Role      string `json:"role,omitempty" doc:"The user's role in the workspace."`
	Admin     bool   `json:"administrator,omitempty" doc:"The user acted as an administrator of the installation."`
	Via       string `json:"via,omitempty" doc:"How a request without a user came, such as through a sandbox's own URL."`
	Address   string `json:"address,omitempty" doc:"The IP address of the client."`
	UserAgent string `json:"user_agent,omitempty" doc:"The program of the client, as it calls itself."`

	// The object.
	Workspace  string `json:"workspace_id,omitempty" doc:"The workspace of the object."`
	ObjectKind string `json:"object_kind,omitempty" doc:"The kind of the object."`
	ObjectID   string `json:"object_id,omitempty" doc:"The id of the object."`
	ObjectName string `json:"object_name,omitempty" doc:"The name of the object."`

	// Command is the program and its arguments, without secrets.
	Command          []string `json:"command,omitempty" doc:"The program and its arguments, without secrets."`
	CommandTruncated bool     `json:"command_truncated,omitempty" doc:"The command had more arguments or bytes."`
	// Stdout and Stderr are the beginnings of the command's output, if the workspace has outputs recorded.
	Stdout          string `json:"stdout,omitempty" doc:"The beginning of the command's standard output, without secrets, if the workspace has audit_output."`
	Stderr          string `json:"stderr,omitempty" doc:"The beginning of its standard error, likewise."`
	OutputTruncated bool   `json:"output_truncated,omitempty" doc:"There was more output."`
	// Details are further facts, by name.
	Details map[string]string `json:"details,omitempty" doc:"Other facts, by name."`
}

// hashOf returns the hash of the chain after a record.
func hashOf(prev Hash, record []byte) Hash {
	h := sha256.New()
	h.Write(prev[:])
	h.Write(record)
	return Hash(h.Sum(nil))
}

// Seal chains records after head, and numbers them.
func Seal(head Point, records []*Record) ([]Row, error) {
	rows := make([]Row, len(records))
	for i, r := range records {
		r.Seq = head.Seq + 1
		b, err := json.Marshal(r)
		if err != nil {
			return nil, fmt.Errorf("encode record %d: %w", r.Seq, err)
		}
		rows[i] = Row{Seq: r.Seq, Record: b, Prev: head.Hash, Hash: hashOf(head.Hash, b)}
		head = Point{Seq: r.Seq, Hash: rows[i].Hash}
	}
	return rows, nil
}

// Verifier checks that rows form a chain, in order.
type Verifier struct {
	at    Point
	begun bool
}

// From returns a Verifier of the rows after a point.
func From(at Point) *Verifier { return &Verifier{at: at, begun: true} }

// FromFirst returns a Verifier that trusts the first row's hash of the rows before it, unless it is
// the first row of the log.
func FromFirst() *Verifier { return &Verifier{} }

// At returns the last row that was checked.
func (v *Verifier) At() Point { return v.at }

// Check returns an error about the next row; after an error no more rows may be checked.
func (v *Verifier) Check(r Row) error {
	if !v.begun {
		v.begun = true
		if r.Seq > 1 {
			v.at = Point{Seq: r.Seq - 1, Hash: r.Prev}
		}
	}
	if r.Seq != v.at.Seq+1 {
		return fmt.Errorf("after record %d comes record %d: records are missing, doubled or out of order", v.at.Seq, r.Seq)
	}
	var inside struct {
		Seq int64 `json:"seq"`
	}
	if err := json.Unmarshal(r.Record, &inside); err != nil || inside.Seq != r.Seq {
		return fmt.Errorf("record %d has been changed: its content is of record %d", r.Seq, inside.Seq)
	}
	if hash := hashOf(v.at.Hash, r.Record); hash != r.Hash {
		return fmt.Errorf("record %d, or its hash, has been changed: its hash is %s, and should be %s",
			r.Seq, hex.EncodeToString(r.Hash[:]), hex.EncodeToString(hash[:]))
	}
	v.at = Point{Seq: r.Seq, Hash: r.Hash}
	return nil
}
