package page_test

import (
	"encoding/base64"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
)

func TestCursor(t *testing.T) {
	cursor := page.Cursor("time", int64(1<<62+1), "a b")
	var at int64
	var id string
	if ok, err := page.Parse(cursor, "time", &at, &id); !ok || err != nil || at != 1<<62+1 || id != "a b" {
		t.Errorf("Parse(Cursor) = %v, %v, %d, %q", ok, err, at, id)
	}
	if ok, err := page.Parse("", "time", &at, &id); ok || err != nil {
		t.Errorf("Parse(\"\") = %v, %v", ok, err)
	}
	raw := base64.RawURLEncoding.EncodeToString
	for name, bad := range map[string]string{
		"no base64": "%%%", "padded": cursor + "=", "no JSON": raw([]byte("x")), "no list": raw([]byte(`{}`)),
		"another order": page.Cursor("name", int64(1), "a"), "a short key": page.Cursor("time", int64(1)), "a long key": page.Cursor("time", int64(1), "a", "b"),
		"another type": page.Cursor("time", "1", "a"), "null": raw([]byte(`["time",null,"a"]`)), "more than a list": raw([]byte(`["time",1,"a"]x`)),
	} {
		if ok, err := page.Parse(bad, "time", &at, &id); ok || sandbox.CodeOf(err) != sandbox.Invalid {
			t.Errorf("%s: Parse(%q) = %v, %v; want invalid", name, bad, ok, err)
		}
	}
}

func TestSize(t *testing.T) {
	for limit, want := range map[int]int{0: page.DefaultSize, 1: 1, page.MaxSize: page.MaxSize, -1: 0, page.MaxSize + 1: 0} {
		got, err := page.Request{Limit: limit}.Size()
		if got != want || (sandbox.CodeOf(err) == sandbox.Invalid) != (want == 0) {
			t.Errorf("Size of limit %d = %d, %v; want %d", limit, got, err, want)
		}
	}
}

// TestPagesAreStable walks a list while items appear and go: all others come once, in order.
func TestPagesAreStable(t *testing.T) {
	for _, descending := range []bool{false, true} {
		t.Run(fmt.Sprintf("descending_%v", descending), func(t *testing.T) {
			order := page.Order[string]{Name: "name", Key: func(s string) string { return s }, Descending: descending}
			list := []string{"m", "c", "e", "k", "g", "i"}
			want := []string{"c", "e", "g", "k", "m"} // without i, which goes
			if descending {
				slices.Reverse(want)
			}
			var got []string
			r := page.Request{Limit: 2}
			for {
				p, err := page.Of(r, list, order)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, p.Items...)
				if p.Next == "" {
					break
				}
				r.Cursor = p.Next
				if len(got) == 2 {
					first := map[bool]string{false: "a", true: "z"}[descending]
					list = slices.DeleteFunc(append(list, first), func(s string) bool { return s == "i" || s == got[1] })
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("pages = %v, want %v", got, want)
			}
		})
	}
	if _, err := page.Of(page.Request{Limit: -1}, []int{1}, page.Order[int]{Key: func(int) string { return "" }}); sandbox.CodeOf(err) != sandbox.Invalid {
		t.Errorf("limit -1 = %v", err)
	}
	if p, err := page.Of(page.Request{Limit: 2}, []string{"a", "b"}, page.Order[string]{Key: func(s string) string { return s }}); err != nil || p.Next != "" {
		t.Errorf("a full last page = %+v, %v; want no next one", p, err)
	}
}

func TestByTimeSortsAsTimes(t *testing.T) {
	early, late := time.Unix(9, 0), time.Unix(10, 0)
	if a, b := page.ByTime(early, "z"), page.ByTime(late, "a"); a >= b {
		t.Errorf("%q is not before %q", a, b)
	}
}
