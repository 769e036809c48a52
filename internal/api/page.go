package api

import (
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/page"
)

// PageInput is the query parameters that select a page of a list. It is exported
// because huma passes over embedded types that are not.
type PageInput struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"Items on a page at most."`
	Cursor string `query:"cursor" maxLength:"8192" doc:"next_cursor of the page before; the first page when omitted."`
}

func (in PageInput) request() page.Request { return page.Request{Limit: in.Limit, Cursor: in.Cursor} }

// paged answers a page whose items are shown by show.
func paged[T, W any](p page.Page[T], err error, show func(T) W) (*body[wire.Page[W]], error) {
	if err != nil {
		return nil, err
	}
	out := wire.Page[W]{Items: make([]W, len(p.Items))}
	for i, item := range p.Items {
		out.Items[i] = show(item)
	}
	if p.Next != "" {
		out.NextCursor = &p.Next
	}
	return reply(out), nil
}

// pagedOf answers the page of a whole list that the caller asks for.
func pagedOf[T, W any](in PageInput, items []T, err error, o page.Order[T], show func(T) W) (*body[wire.Page[W]], error) {
	if err != nil {
		return nil, err
	}
	p, err := page.Of(in.request(), items, o)
	return paged(p, err, show)
}

// schemaName names the schema of a type: a page of sandboxes is SandboxPage.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	if item, ok := strings.CutPrefix(name, "Page"); ok && strings.Contains(t.Name(), "[") {
		return item + "Page"
	}
	return name
}
