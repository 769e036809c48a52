package agentuity

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/modbox/modbox/internal/sandbox"
)

// valueMax bounds each value of a request with files, except the contents: a path, or a value that
// is ignored.
const valueMax = 64 << 10

// fileStream reads the files of a body {"files": [{"path": "…", "content": "…"}]} one after the
// other, without holding a content in memory.
type fileStream struct {
	r     *bufio.Reader
	files int // that begin before the position
	// keep reads a whole content into memory, because its path comes after it in the body.
	keep func(content io.Reader) ([]byte, error)
	// write writes a file. It reads content to its end, or returns an error.
	write func(path string, content io.Reader) error
}

// invalidBody is an error in the form of the body.
func invalidBody() error {
	return sandbox.Errorf(sandbox.Invalid, "the body is not a valid JSON object for this call")
}

// bodyError is an error of reading the body.
func bodyError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return invalidBody()
	}
	return err
}

// run reads the body and writes its files. It returns how many files were written, also with an
// error. Errors: Invalid, naming the field; the errors of the body's reader, keep and write.
func (s *fileStream) run() (written int, err error) {
	if b, err := s.next(); err == nil && b == 0 {
		return 0, sandbox.InvalidField("body", "must be a JSON object")
	}
	found := false
	err = s.object(func(key string) error {
		if key != "files" {
			return s.value(nil)
		}
		if found {
			return sandbox.InvalidField("files", "is in the body twice")
		}
		found = true
		if b, err := s.next(); err != nil || b != '[' {
			return s.null(err, "files", "must be an array")
		}
		return s.sequence('[', ']', func() error {
			if s.files >= sandbox.ExecutionFiles {
				return sandbox.InvalidField("files", "must be at most %d; upload more as an archive", sandbox.ExecutionFiles)
			}
			s.files++
			if err := s.file(fmt.Sprintf("files[%d]", s.files-1)); err != nil {
				return err
			}
			written++
			return nil
		})
	})
	if err == nil {
		if b, end := s.next(); end != nil || b != 0 {
			err = errors.Join(end, invalidBody())
		}
	}
	return written, err
}

// file reads an object with a path and a content, and writes the file.
func (s *fileStream) file(field string) error {
	var path *string
	var content []byte // that came before its path
	had, written := false, false
	err := s.object(func(key string) error {
		switch {
		case key != "path" && key != "content":
			return s.value(nil)
		case key == "path" && path != nil || key == "content" && had:
			return sandbox.InvalidField(field+"."+key, "is in the object twice")
		case key == "path":
			var p string
			if err := s.value(&p); err != nil || !isPath(p) {
				return errors.Join(sandbox.InvalidField(field+".path", "must be a path of at most %d bytes, without NUL characters", valueMax), err)
			}
			path = &p
			return nil
		}
		had = true
		if b, err := s.next(); err != nil || b != '"' {
			return s.null(err, field+".content", "must be a string in base64")
		}
		_, _ = s.r.Discard(1) // it is in the buffer
		c := &contentReader{field: field + ".content", text: &stringReader{r: s.r}}
		c.bytes = base64.NewDecoder(base64.StdEncoding, c.text)
		if path == nil {
			var err error
			content, err = s.keep(c)
			return err
		}
		written = true
		return s.write(absolute(*path), c)
	})
	switch {
	case err != nil:
		return err
	case path == nil:
		return sandbox.InvalidField(field+".path", "must be set, without NUL characters")
	case written:
		return nil
	}
	return s.write(absolute(*path), bytes.NewReader(content))
}

// next skips white space and returns the next byte, which it leaves unread; 0 at the end.
func (s *fileStream) next() (byte, error) {
	for {
		b, err := s.r.ReadByte()
		switch {
		case err == io.EOF:
			return 0, nil
		case err != nil:
			return 0, err
		case b != ' ' && b != '\t' && b != '\r' && b != '\n':
			return b, s.r.UnreadByte()
		}
	}
}

// expect reads the byte want after white space.
func (s *fileStream) expect(want byte) error {
	b, err := s.next()
	if err == nil && b != want {
		err = invalidBody()
	}
	if err == nil {
		_, err = s.r.Discard(1)
	}
	return err
}

// null reads null in place of a value that has another form. err is the error so far.
func (s *fileStream) null(err error, field, must string) error {
	var v any
	if err == nil {
		err = s.value(&v)
	}
	if err == nil && v != nil {
		err = sandbox.InvalidField(field, "%s", must)
	}
	return err
}

// object reads an object, and calls member at the value of each key.
func (s *fileStream) object(member func(key string) error) error {
	return s.sequence('{', '}', func() error {
		var key string
		if b, err := s.next(); err != nil || b != '"' {
			return errors.Join(err, invalidBody())
		}
		if err := s.value(&key); err != nil {
			return err
		}
		if err := s.expect(':'); err != nil {
			return err
		}
		return member(key)
	})
}

// sequence reads an object or an array, and calls element at each element.
func (s *fileStream) sequence(first, last byte, element func() error) error {
	if err := s.expect(first); err != nil {
		return err
	}
	if b, err := s.next(); err != nil || b == last {
		return errors.Join(err, s.expect(last))
	}
	for {
		if err := element(); err != nil {
			return err
		}
		b, err := s.next()
		if err != nil || b != ',' {
			return errors.Join(err, s.expect(last))
		}
		_, _ = s.r.Discard(1) // it is in the buffer
	}
}

// value reads a value of at most valueMax bytes into v, unless v is nil.
func (s *fileStream) value(v any) error {
	if _, err := s.next(); err != nil {
		return err
	}
	var raw []byte
	depth, quoted, escaped := 0, false, false
	for {
		b, err := s.r.ReadByte()
		if err != nil {
			return bodyError(err)
		}
		ends := false
		switch {
		case escaped:
			escaped = false
		case quoted:
			escaped = b == '\\'
			if quoted = b != '"'; !quoted {
				ends = depth == 0
			}
		case b == '"':
			quoted = true
		case b == '{' || b == '[':
			depth++
		case b == '}' || b == ']' || depth == 0 && (b == ',' || b == ' ' || b == '\t' || b == '\r' || b == '\n'):
			if depth == 0 { // of the object around the value
				if err := s.r.UnreadByte(); err != nil {
					return err
				}
				return decodeValue(raw, v)
			}
			depth--
			ends = depth == 0
		}
		if raw = append(raw, b); len(raw) > valueMax {
			return sandbox.Errorf(sandbox.TooLarge, "a value in the body has more than %d bytes", valueMax)
		}
		if ends {
			return decodeValue(raw, v)
		}
	}
}

func decodeValue(raw []byte, v any) error {
	if v == nil {
		v = new(any)
	}
	if json.Unmarshal(raw, v) != nil {
		return invalidBody()
	}
	return nil
}

// contentReader reads the bytes of a content in base64.
type contentReader struct {
	field string
	text  *stringReader
	bytes io.Reader
}

// Read implements io.Reader. Errors: Invalid, naming the field; the errors of the body.
func (c *contentReader) Read(p []byte) (int, error) {
	n, err := c.bytes.Read(p)
	switch {
	case err == nil || err == io.EOF:
		return n, err
	case c.text.err != nil && c.text.err != io.EOF && !errors.Is(c.text.err, errCharacter):
		return n, bodyError(c.text.err)
	}
	return n, sandbox.InvalidField(c.field, "must be in base64")
}

// errCharacter is the error for a character that base64 does not have.
var errCharacter = errors.New("no base64")

// stringReader reads the text of a JSON string, up to its closing quotation mark.
type stringReader struct {
	r      *bufio.Reader
	padded bool // "=" was read
	err    error
}

// Read implements io.Reader.
func (t *stringReader) Read(p []byte) (n int, err error) {
	for n < len(p) && t.err == nil {
		if plain := t.plain(p[n:]); plain > 0 {
			n += plain
			continue
		}
		var b byte
		if b, t.err = t.character(); t.err == nil {
			p[n] = b
			n++
		}
	}
	if n > 0 {
		return n, nil
	}
	return 0, t.err
}

// plain copies the buffer up to the next character with a meaning of its own.
func (t *stringReader) plain(p []byte) int {
	if t.padded {
		return 0
	}
	b, _ := t.r.Peek(min(len(p), t.r.Buffered()))
	for _, special := range []byte{'"', '\\', '='} {
		if i := bytes.IndexByte(b, special); i >= 0 {
			b = b[:i]
		}
	}
	n := copy(p, b)
	_, _ = t.r.Discard(n) // it is in the buffer
	return n
}

// character returns the next character; io.EOF after the string.
func (t *stringReader) character() (byte, error) {
	b, err := t.r.ReadByte()
	switch {
	case err == io.EOF:
		return 0, io.ErrUnexpectedEOF
	case err != nil:
		return 0, err
	case b == '"':
		return 0, io.EOF
	case b == '\\':
		if b, err = t.escape(); err != nil {
			return 0, err
		}
	}
	if t.padded && b != '=' && b != '\r' && b != '\n' {
		return 0, errCharacter
	}
	t.padded = t.padded || b == '='
	return b, nil
}

// escape reads an escape sequence after its backslash.
func (t *stringReader) escape() (byte, error) {
	raw := []byte{'"', '\\', 0, '"'}
	var err error
	if raw[2], err = t.r.ReadByte(); err == nil && raw[2] == 'u' {
		raw = append(raw[:3], 0, 0, 0, 0, '"')
		_, err = io.ReadFull(t.r, raw[3:7])
	}
	if err != nil {
		return 0, errors.Join(err, io.ErrUnexpectedEOF)
	}
	var s string
	if json.Unmarshal(raw, &s) != nil || len(s) != 1 {
		return 0, errCharacter
	}
	return s[0], nil
}
