package wire

// AuditReport is the answer to GET /v1/audit/verify.
type AuditReport struct {
	OK         bool   `json:"ok" doc:"Whether every stored record is unchanged."`
	Problem    string `json:"problem" doc:"What is wrong first; empty when nothing is."`
	Records    int64  `json:"records" doc:"Records that were checked."`
	AnchorSeq  int64  `json:"anchor_seq" doc:"The newest record that retention removed; 0 when none was."`
	AnchorHash string `json:"anchor_hash" doc:"The hash of the newest record that retention removed, in hexadecimal; zeros when none was."`
	HeadSeq    int64  `json:"head_seq" doc:"The newest record. A copy of its hash elsewhere proves later that the log was not rewritten."`
	HeadHash   string `json:"head_hash" doc:"The hash of the newest record, in hexadecimal."`
}
