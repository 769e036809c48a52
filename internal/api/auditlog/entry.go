// Package auditlog is the shape of the records of the audit log on /v1.
package auditlog

import (
	"encoding/json"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/internal/audit"
)

// AuditRecord is the content of a record of the audit log.
type AuditRecord audit.Record

// StoredAuditRecord is an [AuditRecord] in its stored bytes: its hash is over these bytes.
type StoredAuditRecord json.RawMessage

// MarshalJSON implements json.Marshaler.
func (r StoredAuditRecord) MarshalJSON() ([]byte, error) { return json.RawMessage(r).MarshalJSON() }

// UnmarshalJSON implements json.Unmarshaler.
func (r *StoredAuditRecord) UnmarshalJSON(b []byte) error {
	*r = append((*r)[:0], b...)
	return nil
}

// Schema returns the schema of AuditRecord; absent fields are never null.
func (StoredAuditRecord) Schema(r huma.Registry) *huma.Schema {
	ref := r.Schema(reflect.TypeFor[AuditRecord](), true, "")
	r.SchemaFromRef(ref.Ref).Properties["command"].Nullable = false
	return ref
}

// AuditEntry is a record of the audit log with its place in the chain.
type AuditEntry struct {
	Seq    int64             `json:"seq" doc:"Its number, without gaps in the whole log."`
	Prev   string            `json:"prev" doc:"The hash of the record before, in hexadecimal; zeros before the first."`
	Hash   string            `json:"hash" doc:"SHA-256, in hexadecimal, over the 32 bytes of prev and the bytes of record as they are here."`
	Record StoredAuditRecord `json:"record"`
}
