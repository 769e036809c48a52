package fileserver

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

// pieces is a file that counts its writes, and fails when it is full.
type pieces struct {
	bytes.Buffer
	writes, most int
}

var errFull = errors.New("full")

func (p *pieces) Write(b []byte) (int, error) {
	if p.Len()+len(b) > p.most {
		return 0, errFull
	}
	p.writes++
	return p.Buffer.Write(b)
}

func TestSaveWritesWholePieces(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789"), 100_000)
	broken := errors.New("broken off")
	for _, tc := range []struct {
		name   string
		end    error
		most   int
		want   error
		writes int
	}{
		{"whole", io.EOF, len(content), nil, (len(content) + writeBytes - 1) / writeBytes},
		{"broken", broken, len(content), broken, len(content) / writeBytes},
		{"short", io.ErrUnexpectedEOF, len(content), io.ErrUnexpectedEOF, len(content) / writeBytes},
		{"full", io.EOF, len(content) - 1, errFull, len(content) / writeBytes},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := &pieces{most: tc.most}
			n, err := save(f, io.MultiReader(&small{bytes.NewReader(content)}, failing{tc.end}))
			if n != int64(len(content)) || !errors.Is(err, tc.want) || f.writes != tc.writes {
				t.Errorf("save() = %d, %v after %d writes, want %d, %v after %d", n, err, f.writes, len(content), tc.want, tc.writes)
			}
			if !bytes.Equal(f.Bytes(), content[:f.Len()]) || err == nil && f.Len() != len(content) {
				t.Errorf("%d bytes were written, and not those that came", f.Len())
			}
		})
	}
}

// small returns its content in small pieces.
type small struct{ r io.Reader }

func (s *small) Read(p []byte) (int, error) { return s.r.Read(p[:min(len(p), 1000)]) }

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
