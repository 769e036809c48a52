// Package events has the routes of /v1 with the events of all sandboxes of a workspace.
package events

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/eventstream"
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/sandbox"
)

// Sandboxes finds sandboxes.
type Sandboxes interface {
	// Get returns the sandbox with an id or a name. Errors: NotFound.
	Get(ctx context.Context, c sandbox.Caller, ref string) (sandbox.Sandbox, error)
	// Used returns what each running sandbox of a workspace had used when it was measured last.
	Used(ws sandbox.WorkspaceID) []sandbox.Use
}

// Events are the routes of the events of a workspace.
type Events struct {
	Hub       *eventstream.Hub
	Sandboxes Sandboxes
	Guest     *guest.Calls
	// Elsewhere returns the recorded usage of the running sandboxes of a workspace that other servers work on; nil if there are none.
	Elsewhere func(ctx context.Context, ws sandbox.WorkspaceID) (map[sandbox.ID]sandbox.Usage, error)
	// Auth tells a stream when its client loses its rights.
	Auth *auth.Authenticator
	// Ping is the longest silence of a stream.
	Ping time.Duration

	shared measured
}

type listInput struct {
	Sandbox  string    `query:"sandbox" maxLength:"255" doc:"Only events of this sandbox: its id or name."`
	Type     []string  `query:"type,explode" maxItems:"64" nullable:"false" doc:"Only events of these types."`
	Since    time.Time `query:"since" doc:"Only events from that time on (RFC 3339)."`
	Until    time.Time `query:"until" doc:"Only events before that time (RFC 3339)."`
	AfterSeq int64     `query:"after_seq" minimum:"0" doc:"Only events with a greater seq, which happened after that event."`
	Order    string    `query:"order" enum:"asc,desc" default:"asc" doc:"asc: oldest first; desc: newest first."`
	route.PageInput
}

// Register adds the routes.
func (h *Events) Register(m *route.Mux) {
	tags := []string{"events"}
	route.JSON(m, huma.Operation{
		OperationID: "list-workspace-events", Method: http.MethodGet, Path: "/v1/events", Tags: tags,
		Summary: "List what happened to the sandboxes of the workspace", Description: "The events of all sandboxes. They stay for as long as the record of their sandbox, also when it has ended.",
	}, h.list)
	header := route.Query("Last-Event-ID", "The id of the last message, to go on where another stream ended. It takes precedence over after_seq and since.", false)
	header.In = "header"
	types := route.Query("type", "Only events of these types.", false)
	types.Explode, types.Schema = new(bool), &huma.Schema{Type: huma.TypeArray, Items: types.Schema}
	*types.Explode = true
	m.Raw(huma.Operation{
		OperationID: "stream-workspace-events", Method: http.MethodGet, Path: "/v1/events/stream", Tags: tags,
		Summary: "Follow what happens to the sandboxes of the workspace", Description: streamDescription,
		Parameters: []*huma.Param{
			route.Query("sandbox", "Only events of this sandbox: its id or name.", false), types,
			route.Query("since", "Begin with the events from that time on (RFC 3339).", false),
			route.Query("after_seq", "Begin after the event of this number.", false),
			route.Query("stats", "Also send every so many seconds, 1 to 60, what the running sandboxes use.", false), header,
		},
		Responses: map[string]*huma.Response{"200": {Description: "The events", Content: map[string]*huma.MediaType{
			"text/event-stream": {Schema: route.SchemaOf[wire.Event](m)},
		}}},
	}, h.stream)
	route.SchemaOf[wire.SandboxUse](m)
}

const streamDescription = "Answers server-sent events (`text/event-stream`). Without `Last-Event-ID`, `after_seq` or `since` it begins with the next event to come. " +
	"Each message has an event as JSON in `data`, and in `id` the number with which a new stream goes on: it neither misses an event nor repeats one. " +
	"The first message, and a message after every 15 seconds of silence, has an `id` and no data. " +
	"With `stats` there are also messages with `event: stats` and without an `id`: `data` has a list of SandboxUse. The server measures all running sandboxes every 10 seconds; " +
	"a message has the measurements since the message before. With `sandbox` it measures that one, if it runs, for each message. " +
	"A message with `event: problem` has an error in `data` and ends the stream; it comes for example when the token is revoked. " +
	"A stream that ends without it ended with its connection or the server: connect again. " +
	"A client that reads nothing for a minute is disconnected."

func (h *Events) list(ctx context.Context, in *listInput) (*route.Body[wire.Page[wire.Event]], error) {
	f, err := h.filter(ctx, in.Sandbox, in.Type)
	if err != nil {
		return nil, err
	}
	f.Since, f.Until, f.AfterSeq, f.Descending = in.Since, in.Until, in.AfterSeq, in.Order == "desc"
	f.Limit, f.Cursor = in.Limit, in.Cursor
	p, err := h.Hub.List(ctx, route.Caller(ctx).Workspace, f)
	return route.Paged(p, err, Show)
}

// filter returns the filter for a sandbox, "" for all, and types.
func (h *Events) filter(ctx context.Context, ref string, types []string) (sandbox.EventFilter, error) {
	var f sandbox.EventFilter
	for _, name := range types {
		t := sandbox.EventType(name)
		if !t.Valid() {
			return f, sandbox.InvalidField("type", "%q is not a type of events; the types are %v", sandbox.Excerpt(name), sandbox.EventTypes)
		}
		f.Types = append(f.Types, t)
	}
	if ref == "" {
		return f, nil
	}
	sb, err := h.Sandboxes.Get(ctx, route.Caller(ctx), ref)
	f.Sandbox = sb.ID
	return f, err
}

// Show returns an event as answers have it.
func Show(e sandbox.Event) wire.Event {
	return wire.Event{Seq: e.Seq, SandboxID: string(e.Sandbox), SandboxName: e.SandboxName, Time: e.Time, Type: string(e.Type), Message: e.Message, Data: e.Data}
}
