package sandbox

import "time"

// AuditTime is the form in which records of the audit log say when they were
// made, in UTC: the texts are ordered as the times are.
const AuditTime = "2006-01-02T15:04:05.000000Z"

// AuditHash is the SHA-256 that ends the chain of the audit log at one record.
type AuditHash [32]byte

// AuditRow is one record of the audit log as it is kept. What Record holds is the
// matter of package audit.
type AuditRow struct {
	Seq    int64     // 1, 2, 3, … without a gap
	Record []byte    // JSON, never changed: these bytes are what is hashed
	Prev   AuditHash // of the row before
	Hash   AuditHash // over Prev and Record
}

// AuditIntent is an operation that has been let in and has no row yet.
type AuditIntent struct {
	ID     string
	Record []byte // JSON
}

// AuditChange is what changes in the audit log at once.
type AuditChange struct {
	// Begun are put down, in the place of those with the same id, and then Ended are
	// removed, by id. Of ids that are not there nothing is said.
	Begun []AuditIntent
	Ended []string
	// Extend is given where the log ends and returns the rows that follow there. It
	// may be called again when the change was not made. May be nil.
	Extend func(head AuditPoint) ([]AuditRow, error)
	// Durable says that the change must outlive a loss of power.
	Durable bool
}

// AuditPoint is a place in the audit log: a row and its hash. The zero AuditPoint
// is before the first row.
type AuditPoint struct {
	Seq  int64
	Hash AuditHash
}

// AuditChain is the state of the audit log as a whole.
type AuditChain struct {
	Anchor AuditPoint // the newest row that was cut off, from which on rows are kept
	Head   AuditPoint // the newest row
	Bytes  int64      // of the records that are kept
}

// AuditFilter narrows a list of the audit log; zero fields do not.
type AuditFilter struct {
	Workspace WorkspaceID
	User      UserID
	Object    string // the id or the name of an object
	Action    string
	Outcome   string
	// Since and Until are when records were made: from Since on, before Until.
	Since, Until time.Time
	// AfterSeq, when set, leaves out the rows up to and with this Seq.
	AfterSeq int64
	// Limit is the page size, 1 to 1000; 0 means 100.
	Limit int
	// Cursor is Next of the page before; "" for the first.
	Cursor    string
	Ascending bool
}

// AuditCut says which rows are too many: those from before a time, and the oldest
// until MaxBytes hold what is left.
type AuditCut struct {
	Before   time.Time
	MaxBytes int64 // 0: no limit
	Limit    int   // rows to cut at most
}
