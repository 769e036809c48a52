package audit

import (
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// TimeFormat is the format of times in records, in UTC: the texts sort as the times do.
const TimeFormat = "2006-01-02T15:04:05.000000Z"

// Hash is the SHA-256 that ends the chain of the log at a record.
type Hash [32]byte

// Row is a record of the log as the Store keeps it.
type Row struct {
	Seq    int64  // 1, 2, 3, … without a gap
	Record []byte // a Record as JSON, never changed: the hash covers these bytes
	Prev   Hash   // of the previous row
	Hash   Hash   // over Prev and Record
}

// Intent is an accepted operation that has no row yet.
type Intent struct {
	ID     string
	Record []byte // JSON
}

// Change is a change of the log that the Store makes in one transaction.
type Change struct {
	// Begun are stored, and replace intents with the same id; then the intents with the ids in
	// Ended are removed. Unknown ids are ignored.
	Begun []Intent
	Ended []string
	// Records are appended to the log, see [Seal]; the store chains them in the transaction.
	Records []*Record
	// Durable says that the change must survive a loss of power.
	Durable bool
}

// Point is a place in the log: a row and its hash. The zero Point is before the first row.
type Point struct {
	Seq  int64
	Hash Hash
}

// Chain is the state of the log as a whole.
type Chain struct {
	Anchor Point // the newest removed row; the log has the rows after it
	Head   Point // the newest row
	Bytes  int64 // of the records in the log
}

// Filter narrows a list of the log; zero fields do not.
type Filter struct {
	Workspace sandbox.WorkspaceID
	User      sandbox.UserID
	Object    string // the id or the name of an object
	Action    string
	Outcome   string
	// Search has words that the records must have, see [WantedWords].
	Search string
	// Since and Until bound the time of the records: from Since on, before Until.
	Since, Until time.Time
	// AfterSeq, when set, leaves out the rows up to and with this Seq.
	AfterSeq int64
	// Limit is the page size, 1 to 1000; 0 means 100.
	Limit int
	// Cursor is Next of the page before; "" for the first.
	Cursor    string
	Ascending bool
}

// Cut selects rows to remove: rows from before a time, and the oldest rows until MaxBytes hold
// the others.
type Cut struct {
	Before   time.Time
	MaxBytes int64 // 0: no limit
	Limit    int   // rows to remove at most
	// Words ends the cut at the row with which it has removed so many words from the index.
	Words int
}
