package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/modbox/modbox/internal/sandbox"
)

// Outcomes beside the codes of errors.
const (
	// OK is the outcome of what was done.
	OK = "ok"
	// Started is that of what goes on; its end has a record with the same request id.
	Started = "started"
	// Canceled is that of what ended because the client went away.
	Canceled = "canceled"
	// Interrupted is that of what the server's end, or its death, cut off: whether it
	// was done is not known.
	Interrupted = "interrupted"
	// Failed is that of what was answered with an error without a code.
	Failed = "failed"
)

// Record is one entry of the log.
type Record struct {
	Seq     int64  `json:"seq"`
	Time    string `json:"time"` // when the record was made, as [sandbox.AuditTime]
	Action  string `json:"action"`
	Outcome string `json:"outcome"` // OK, Started, Canceled, Interrupted, Failed, or the code of the error
	Status  int    `json:"status,omitempty"`
	// DurationMS is how long it took.
	DurationMS int64  `json:"duration_ms"`
	RequestID  string `json:"request_id,omitempty"`
	Route      string `json:"route,omitempty"`
	Permission string `json:"permission,omitempty"` // what the route needs

	// Who. For a request to a sandbox's own URL, Via says so and nobody is named.
	User      string `json:"user_id,omitempty"`
	Token     string `json:"token_id,omitempty"`
	Session   string `json:"session_id,omitempty"`
	Role      string `json:"role,omitempty"`
	Admin     bool   `json:"administrator,omitempty"`
	Via       string `json:"via,omitempty"`
	Address   string `json:"address,omitempty"`
	UserAgent string `json:"user_agent,omitempty"`

	// To what.
	Workspace  string `json:"workspace_id,omitempty"`
	ObjectKind string `json:"object_kind,omitempty"`
	ObjectID   string `json:"object_id,omitempty"`
	ObjectName string `json:"object_name,omitempty"`

	// Command is the program and its arguments, without secrets.
	Command          []string `json:"command,omitempty"`
	CommandTruncated bool     `json:"command_truncated,omitempty"`
	// Details are what else is worth knowing, by name.
	Details map[string]string `json:"details,omitempty"`
}

// hashOf is the hash of the chain after a record.
func hashOf(prev sandbox.AuditHash, record []byte) sandbox.AuditHash {
	h := sha256.New()
	h.Write(prev[:])
	h.Write(record)
	return sandbox.AuditHash(h.Sum(nil))
}

// seal puts records behind head, and gives them their numbers.
func seal(head sandbox.AuditPoint, records []*Record) ([]sandbox.AuditRow, error) {
	rows := make([]sandbox.AuditRow, len(records))
	for i, r := range records {
		r.Seq = head.Seq + 1
		b, err := json.Marshal(r)
		if err != nil {
			return nil, fmt.Errorf("encode record %d: %w", r.Seq, err)
		}
		rows[i] = sandbox.AuditRow{Seq: r.Seq, Record: b, Prev: head.Hash, Hash: hashOf(head.Hash, b)}
		head = sandbox.AuditPoint{Seq: r.Seq, Hash: rows[i].Hash}
	}
	return rows, nil
}

// Verifier checks that rows are a chain, given to it in order.
type Verifier struct {
	at    sandbox.AuditPoint
	begun bool
}

// From returns a Verifier of the rows behind a point.
func From(at sandbox.AuditPoint) *Verifier { return &Verifier{at: at, begun: true} }

// FromFirst returns a Verifier that believes the first row's word for what was
// before it, unless it is the first of the log.
func FromFirst() *Verifier { return &Verifier{} }

// At returns the last row that was checked.
func (v *Verifier) At() sandbox.AuditPoint { return v.at }

// Check returns what is wrong with the next row; nothing may be checked afterwards.
func (v *Verifier) Check(r sandbox.AuditRow) error {
	if !v.begun {
		v.begun = true
		if r.Seq > 1 {
			v.at = sandbox.AuditPoint{Seq: r.Seq - 1, Hash: r.Prev}
		}
	}
	if r.Seq != v.at.Seq+1 {
		return fmt.Errorf("after record %d comes record %d: records are missing, doubled or out of order", v.at.Seq, r.Seq)
	}
	var inside struct {
		Seq int64 `json:"seq"`
	}
	if err := json.Unmarshal(r.Record, &inside); err != nil || inside.Seq != r.Seq {
		return fmt.Errorf("record %d is not what it was: it says that it is record %d", r.Seq, inside.Seq)
	}
	if hash := hashOf(v.at.Hash, r.Record); hash != r.Hash {
		return fmt.Errorf("record %d, or its hash, is not what it was: its hash is %s, and should be %s",
			r.Seq, hex.EncodeToString(r.Hash[:]), hex.EncodeToString(hash[:]))
	}
	v.at = sandbox.AuditPoint{Seq: r.Seq, Hash: r.Hash}
	return nil
}
