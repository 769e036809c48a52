package wire

// AuditReport is the answer to GET /v1/audit/verify.
type AuditReport struct {
	OK         bool   `json:"ok" doc:"Whether every record that is kept is what it was when it was made."`
	Problem    string `json:"problem" doc:"What is wrong first; empty when nothing is."`
	Records    int64  `json:"records" doc:"Records that were checked."`
	AnchorSeq  int64  `json:"anchor_seq" doc:"The newest record that retention removed; 0 when none was."`
	AnchorHash string `json:"anchor_hash" doc:"The hash of the newest record that retention removed, in hexadecimal; zeros when none was."`
	HeadSeq    int64  `json:"head_seq" doc:"The newest record. Who keeps its hash elsewhere can tell later whether the log was made anew."`
	HeadHash   string `json:"head_hash" doc:"The hash of the newest record, in hexadecimal."`
}
