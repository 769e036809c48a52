// Package audits has the routes of /v1 about the audit log.
package audits

import (
	"context"
	"encoding/hex"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/auditlog"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/sandbox"
)

// Routes are the routes.
type Routes struct{ Log *audit.Log }

// AuditFilter has the filters of a list of the audit log.
type AuditFilter struct {
	Since    time.Time `query:"since" doc:"Records made from then on (RFC 3339)."`
	Until    time.Time `query:"until" doc:"Records made before then (RFC 3339)."`
	User     string    `query:"user" maxLength:"64" doc:"What that user did: its id."`
	Object   string    `query:"object" maxLength:"256" doc:"What was done to the object with that id or name."`
	Action   string    `query:"action" maxLength:"64" doc:"What was done, such as exec or create-sandbox: the id of the operation."`
	Outcome  string    `query:"outcome" maxLength:"32" doc:"How it ended: ok, started, cancelled, interrupted, failed, or the code of an error."`
	Search   string    `query:"search" maxLength:"200" doc:"Records that have all of these words, at most 8, in their action, outcome, address, object, command, details or outputs, among the first 100 different words of a record. Words of three and more letters or digits also find longer words."`
	Order    string    `query:"order" enum:"asc,desc" default:"desc" doc:"The newest first, or the oldest."`
	AfterSeq int64     `query:"after_seq" minimum:"0" doc:"Only records with a greater number."`
	route.PageInput
}

type installationAuditInput struct {
	AuditFilter
	Workspace string `query:"workspace" maxLength:"64" doc:"What was done in that workspace: its id."`
}

// Register adds the routes.
func (h *Routes) Register(m *route.Mux) {
	tags := []string{"audit"}
	route.JSON(m, huma.Operation{
		OperationID: "list-audit", Method: http.MethodGet, Path: "/v1/audit", Tags: tags,
		Summary: "List the audit log of the workspace", Description: "Records of the audit log, for the workspace's owners and admins. The answer includes all actions before the request.",
	}, func(ctx context.Context, in *AuditFilter) (*route.Body[wire.Page[auditlog.AuditEntry]], error) {
		return h.list(ctx, in, route.Caller(ctx).Workspace)
	})
	route.JSON(m, huma.Operation{
		OperationID: "list-installation-audit", Method: http.MethodGet, Path: "/v1/audit/installation", Tags: tags,
		Summary: "List the audit log of the server", Description: "Records of the audit log of all workspaces, and records without a workspace, such as failed sign-ins, for administrators. With order=asc and no filter it is the whole chain.",
	}, func(ctx context.Context, in *installationAuditInput) (*route.Body[wire.Page[auditlog.AuditEntry]], error) {
		return h.list(ctx, &in.AuditFilter, sandbox.WorkspaceID(in.Workspace))
	})
	route.JSON(m, huma.Operation{
		OperationID: "verify-audit", Method: http.MethodGet, Path: "/v1/audit/verify", Tags: tags,
		Summary: "Verify the audit log", Description: "Reads all of it and checks its chain, for administrators. A log that is not what it was is no error but what the answer says.",
	}, h.verify)
}

// list answers a page of the records of the workspace, "" for all.
func (h *Routes) list(ctx context.Context, in *AuditFilter, ws sandbox.WorkspaceID) (*route.Body[wire.Page[auditlog.AuditEntry]], error) {
	f := audit.Filter{
		Workspace: ws, User: sandbox.UserID(in.User), Object: in.Object, Action: in.Action, Outcome: in.Outcome, Search: in.Search,
		Since: in.Since, Until: in.Until, AfterSeq: in.AfterSeq, Limit: in.Limit, Cursor: in.Cursor, Ascending: in.Order == "asc",
	}
	rows, err := h.Log.Rows(ctx, f)
	return route.Paged(rows, err, func(r audit.Row) auditlog.AuditEntry {
		return auditlog.AuditEntry{Seq: r.Seq, Prev: hex.EncodeToString(r.Prev[:]), Hash: hex.EncodeToString(r.Hash[:]), Record: r.Record}
	})
}

func (h *Routes) verify(ctx context.Context, _ *struct{}) (*route.Body[wire.AuditReport], error) {
	r, err := h.Log.Verify(ctx)
	if err != nil {
		return nil, err
	}
	return route.Reply(wire.AuditReport{
		OK: r.Problem == "", Problem: r.Problem, Records: r.Records,
		AnchorSeq: r.Anchor.Seq, AnchorHash: hex.EncodeToString(r.Anchor.Hash[:]),
		HeadSeq: r.Head.Seq, HeadHash: hex.EncodeToString(r.Head.Hash[:]),
	}), nil
}
