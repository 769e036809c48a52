package route

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
)

// Caller returns the caller of an authenticated request.
func Caller(ctx context.Context) sandbox.Caller {
	id, _ := auth.FromContext(ctx)
	return sandbox.Caller{User: id.User, Workspace: id.Workspace, ShortIDs: true, ReadOnly: !id.May(account.SandboxesWrite)}
}

// SandboxRef is the path parameter that names a sandbox. It is exported because
// huma passes over embedded types that are not.
type SandboxRef struct {
	Ref string `path:"sandbox" maxLength:"255" doc:"The sandbox: its id or its name, percent-encoded. A live sandbox takes precedence over ended sandboxes of the same name."`
}

// PageInput is the query parameters that select a page of a list. It is exported
// because huma passes over embedded types that are not.
type PageInput struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"Items on a page at most."`
	Cursor string `query:"cursor" maxLength:"8192" doc:"next_cursor of the page before; the first page when omitted."`
}

// Request returns the page that is asked for.
func (in PageInput) Request() page.Request { return page.Request{Limit: in.Limit, Cursor: in.Cursor} }

// SandboxParam describes the path parameter of a [Mux.Raw] route that names a sandbox.
func SandboxParam() *huma.Param {
	return &huma.Param{
		Name: "sandbox", In: "path", Required: true, Schema: &huma.Schema{Type: "string"},
		Description: "The sandbox: its id or its name, percent-encoded.",
	}
}

// Query describes a query parameter of a [Mux.Raw] route.
func Query(name, doc string, required bool) *huma.Param {
	return &huma.Param{Name: name, In: "query", Required: required, Description: doc, Schema: &huma.Schema{Type: "string"}}
}

// Decode reads the JSON body of a [Mux.Raw] route: bounded in size and time, unknown fields refused.
func Decode[T any](w http.ResponseWriter, r *http.Request, max int64) (v T, err error) {
	body, done := edge.Body(w, r, max)
	defer done()
	dec := json.NewDecoder(body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&v); err != nil {
		return v, BodyError(err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return v, sandbox.InvalidField("body", "there is something after the JSON object")
	}
	return v, nil
}

// Seconds returns n seconds.
func Seconds(n int) time.Duration { return time.Duration(n) * time.Second }

// ParseMode reads permission bits in octal; "" is 0.
func ParseMode(s string) (uint32, error) {
	if s == "" {
		return 0, nil
	}
	m, err := strconv.ParseUint(s, 8, 32)
	if err != nil || m > 0o7777 {
		return 0, sandbox.InvalidField("mode", "must be permission bits in octal, such as 0644")
	}
	return uint32(m), nil
}

// ParseBool reads true or false in a field; "" is false.
func ParseBool(field, s string) (bool, error) {
	if s == "" {
		return false, nil
	}
	b, err := strconv.ParseBool(s)
	if err != nil {
		return false, sandbox.InvalidField(field, "must be true or false")
	}
	return b, nil
}
