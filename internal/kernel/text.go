package kernel

import (
	"crypto/rand"
	"strings"
	"unicode/utf8"
)

func randomText() string { return rand.Text() }

// utf8Text makes text of bytes that arrive in pieces, which may end within a character.
type utf8Text struct{ rest []byte }

// next returns the text of more. An incomplete character stays for the next call; at the end, next
// replaces it.
func (t *utf8Text) next(more []byte, end bool) string {
	data := append(t.rest, more...)
	t.rest = nil
	if !end {
		for n := 1; n < utf8.UTFMax && n <= len(data); n++ {
			if last := data[len(data)-n:]; utf8.RuneStart(last[0]) {
				if !utf8.FullRune(last) {
					t.rest = append([]byte(nil), last...)
					data = data[:len(data)-n]
				}
				break
			}
		}
	}
	return strings.ToValidUTF8(string(data), "\uFFFD")
}
