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

// NewTransfer returns the progress of a copy of total bytes, -1 if their number is unknown, shown on out.
func NewTransfer(out io.Writer, what string, total int64) *Transfer {
	t := &Transfer{}
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
	return io.TeeReader(r, t.bar)
}

// End removes the bar.
func (t *Transfer) End() {
	if t.bar != nil {
		_ = t.bar.Finish() // a bar that cannot be drawn hides nothing
	}
}
