package sandbox

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/modbox/modbox/client"
)

func TestTailOffset(t *testing.T) {
	long := strings.Repeat("a line\n", 100_000)
	for _, tc := range []struct {
		content string
		lines   int
		want    string
	}{
		{"", 3, ""},
		{"one", 1, "one"},
		{"one\ntwo\nthree\n", 0, ""},
		{"one\ntwo\nthree\n", 2, "two\nthree\n"},
		{"one\ntwo\nthree", 2, "two\nthree"},
		{"one\ntwo\n", 2, "one\ntwo\n"},
		{"one\ntwo\n", 9, "one\ntwo\n"},
		{"one\n\n\n", 2, "\n\n"},
		{long + "last\n", 1, "last\n"},
		{long + strings.Repeat("x", 1<<20), 2, "a line\n" + strings.Repeat("x", 1<<20)},
		{long, 1 << 20, long},
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			from, _ := strconv.Atoi(r.URL.Query().Get("offset"))
			fmt.Fprint(w, tc.content[from:]+"what came meanwhile\n")
		}))
		c, err := client.New(srv.URL, "mbx_test")
		if err != nil {
			t.Fatal(err)
		}
		got, err := tailOffset(t.Context(), c, client.OutputStream{StreamID: "x", SizeBytes: int64(len(tc.content))}, tc.lines)
		srv.Close()
		if err != nil || tc.content[got:] != tc.want {
			t.Errorf("the last %d lines of %.40q (%d bytes) begin at %d, %v", tc.lines, tc.content, len(tc.content), got, err)
		}
	}
}
