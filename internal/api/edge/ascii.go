package edge

import (
	"net/http"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// asciiBuffer is the size of the pieces that an asciiWriter writes.
	asciiBuffer = 32 << 10
	// escapeMax is the length of the longest escape: a character of two units of UTF-16.
	escapeMax = 2 * len(`\u0000`)
	digits    = "0123456789abcdef"
)

// asciiWriter writes JSON and escapes in it what a client could misread: characters beyond ASCII, and <, > and &.
// JSON has these only in texts. A character may come in several writes. A byte that is no UTF-8 becomes U+FFFD.
type asciiWriter struct {
	http.ResponseWriter
	out   []byte            // of the present write; its capacity is asciiBuffer
	begun [utf8.UTFMax]byte // of a character whose end is to come
	n     int               // bytes of begun
}

func newASCIIWriter(w http.ResponseWriter) *asciiWriter {
	return &asciiWriter{ResponseWriter: w, out: make([]byte, 0, asciiBuffer)}
}

// Unwrap returns the writer below, for [http.ResponseController].
func (w *asciiWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write implements io.Writer. Only the beginning of a character is not written at once.
func (w *asciiWriter) Write(p []byte) (int, error) {
	rest := p
	for w.n > 0 && len(rest) > 0 {
		w.begun[w.n] = rest[0]
		w.n, rest = w.n+1, rest[1:]
		for w.n > 0 && utf8.FullRune(w.begun[:w.n]) {
			c, size := utf8.DecodeRune(w.begun[:w.n])
			w.n = copy(w.begun[:], w.begun[size:w.n])
			if err := w.add(c); err != nil {
				return 0, err
			}
		}
	}
	for len(rest) > 0 {
		if !utf8.FullRune(rest) {
			w.n = copy(w.begun[:], rest)
			break
		}
		c, size := utf8.DecodeRune(rest)
		rest = rest[size:]
		if err := w.add(c); err != nil {
			return 0, err
		}
	}
	if err := w.drain(); err != nil {
		return 0, err
	}
	return len(p), nil
}

// add adds a character.
func (w *asciiWriter) add(c rune) error {
	if len(w.out)+escapeMax > cap(w.out) {
		if err := w.drain(); err != nil {
			return err
		}
	}
	if c < utf8.RuneSelf && c != '<' && c != '>' && c != '&' {
		w.out = append(w.out, byte(c))
		return nil
	}
	if high, low := utf16.EncodeRune(c); high != utf8.RuneError {
		w.escape(high)
		c = low
	}
	w.escape(c)
	return nil
}

// escape adds the escape of a unit of UTF-16.
func (w *asciiWriter) escape(u rune) {
	w.out = append(w.out, '\\', 'u', digits[u>>12&0xf], digits[u>>8&0xf], digits[u>>4&0xf], digits[u&0xf])
}

// drain writes the buffer.
func (w *asciiWriter) drain() error {
	if len(w.out) == 0 {
		return nil
	}
	_, err := w.ResponseWriter.Write(w.out)
	w.out = w.out[:0]
	return err
}
