package route

import (
	"strconv"
	"time"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/page"
)

// Body is an answer with a JSON body.
type Body[T any] struct{ Body T }

// Reply returns an answer.
func Reply[T any](v T) *Body[T] { return &Body[T]{Body: v} }

// Created is an answer whose status says whether something was made.
type Created[T any] struct {
	Status int
	Body   T
}

// Paged answers a page whose items are shown by show.
func Paged[T, W any](p page.Page[T], err error, show func(T) W) (*Body[wire.Page[W]], error) {
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
	return Reply(out), nil
}

// PagedOf answers the page of a whole list that the caller asks for.
func PagedOf[T, W any](in PageInput, items []T, err error, o page.Order[T], show func(T) W) (*Body[wire.Page[W]], error) {
	if err != nil {
		return nil, err
	}
	p, err := page.Of(in.Request(), items, o)
	return Paged(p, err, show)
}

// Optional returns a time for an answer: nil, which is omitted, for none.
func Optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// Octal writes permission bits.
func Octal(mode uint32) string { return "0" + strconv.FormatUint(uint64(mode), 8) }
