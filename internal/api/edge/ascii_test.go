package edge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf16"
)

// escaped returns a JSON text with escapes of characters beyond ASCII.
func escaped(data []byte) string {
	var out []byte
	for _, c := range string(data) {
		if c < 0x80 {
			out = append(out, byte(c))
			continue
		}
		for _, unit := range utf16.AppendRune(nil, c) {
			out = fmt.Appendf(out, `\u%04x`, unit)
		}
	}
	return string(out)
}

var mixed = []string{
	"", "plain", "a€\"😀<b>&\n\u2028\u2029\u007f\u0080\u07ff\u0800\ufffd\uffff\U00010000\U0010ffff",
	"\xff", "\xe2\x82", "\xe2\x82a", "\xe2a€", "\xf0\x9f\x98", "\xf0\x9f\x98😀", "\xf0\xf0\x9f\x98\x80", "\xed\xa0\x80", "\x80\x80€\xc3", "\xc0\xaf",
	strings.Repeat("é😀<\xe2\x82", 3*asciiBuffer/10), strings.Repeat("x", asciiBuffer-3) + "😀",
}

func TestTalkASCII(t *testing.T) {
	for _, text := range mixed {
		// A raw message keeps bytes that are no UTF-8, a text has U+FFFD instead.
		m := map[string]any{"text": text, "raw": json.RawMessage(`"` + strings.NewReplacer(`"`, "", "\n", "", "\u007f", "").Replace(text) + `"`), "html": "<&>"}
		data, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		out := TalkASCII(w, time.Hour)
		err = out.Send(m)
		out.Stop()
		if want := escaped(data) + "\n"; err != nil || w.Body.String() != want || !w.Flushed {
			t.Errorf("Send(%.40q) = %v, wrote %.200q, flushed %t; want %.200q", text, err, w.Body, w.Flushed, want)
		}
	}
}

// TestASCIIWriterSplit: where the writes end does not matter.
func TestASCIIWriterSplit(t *testing.T) {
	for _, text := range mixed {
		data := []byte(text + "\n")
		want := strings.NewReplacer("<", `\u003c`, ">", `\u003e`, "&", `\u0026`).Replace(escaped(data))
		for _, step := range []int{1, 2, 3, 5, 7, asciiBuffer} {
			rec := httptest.NewRecorder()
			w := newASCIIWriter(rec)
			for rest := data; len(rest) > 0; {
				n := min(step, len(rest))
				// The writer keeps nothing of the slice, which is overwritten.
				piece := bytes.Clone(rest[:n])
				if got, err := w.Write(piece); got != n || err != nil {
					t.Fatalf("Write = %d, %v, want %d", got, err, n)
				}
				clear(piece)
				rest = rest[n:]
			}
			if rec.Body.String() != want {
				t.Errorf("writes of %d bytes of %.40q = %.200q, want %.200q", step, text, rec.Body, want)
			}
		}
	}
}
