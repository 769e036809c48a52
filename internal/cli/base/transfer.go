package base

import (
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// Transfer shows the progress of bytes that are copied: a bar on a terminal, nothing elsewhere.
type Transfer struct {
	bar *progressbar.ProgressBar // nil without a terminal
}

// NewTransfer returns the progress of a copy of total bytes, -1 if their number is unknown, shown on out. Files such as
// those below /proc have content although their size is 0.
func NewTransfer(out io.Writer, what string, total int64) *Transfer {
	t := &Transfer{}
	if total == 0 {
		total = -1
	}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		t.bar = progressbar.NewOptions64(total,
			progressbar.OptionSetWriter(f), progressbar.OptionSetDescription(Clean(what)), progressbar.OptionClearOnFinish(),
			progressbar.OptionShowBytes(true), progressbar.OptionSetWidth(20), progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionSpinnerType(14))
	}
	return t
}

// Reader returns a reader whose bytes count.
func (t *Transfer) Reader(r io.Reader) io.Reader {
	if t.bar == nil {
		return r
	}
	if s, ok := r.(io.Seeker); ok {
		return &seekable{Reader: io.TeeReader(r, t), content: s, bar: t.bar}
	}
	return io.TeeReader(r, t)
}

// Write counts bytes. It never fails: a bar that cannot be drawn, or has more bytes than its total as with a file that
// grows, ends no copy.
func (t *Transfer) Write(p []byte) (int, error) {
	_ = t.bar.Add(len(p))
	return len(p), nil
}

// seekable is a file whose reads the bar shows, also when an upload of it begins again.
type seekable struct {
	io.Reader
	content io.Seeker
	bar     *progressbar.ProgressBar
}

func (s *seekable) Seek(offset int64, whence int) (int64, error) {
	at, err := s.content.Seek(offset, whence)
	if err == nil {
		_ = s.bar.Set64(at) // a bar that cannot be drawn hides nothing
	}
	return at, err
}

// End removes the bar.
func (t *Transfer) End() {
	if t.bar != nil {
		_ = t.bar.Finish() // a bar that cannot be drawn hides nothing
	}
}
