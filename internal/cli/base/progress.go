package base

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/modbox/modbox/internal/image/phase"
)

// Progress shows the progress of a build: a bar on a terminal, a line per phase elsewhere.
type Progress struct {
	out  io.Writer
	what string
	bar  *progressbar.ProgressBar // nil without a terminal
	last phase.Phase
}

// NewProgress returns the progress of the work that what names, shown on out.
func NewProgress(out io.Writer, what string) *Progress {
	p := &Progress{out: out, what: what}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.bar = progressbar.NewOptions64(-1,
			progressbar.OptionSetWriter(f), progressbar.OptionSetDescription(what), progressbar.OptionClearOnFinish(),
			progressbar.OptionSetWidth(20), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionSpinnerType(14),
			progressbar.OptionShowCount(), progressbar.OptionSetElapsedTime(true))
	}
	return p
}

// Event shows an event.
func (p *Progress) Event(e phase.Event) {
	if p.bar == nil {
		if e.Phase != p.last && e.Phase != phase.Done {
			fmt.Fprintf(p.out, "%s: %s: %s\n", p.what, e.Phase, Clean(e.Message))
		}
		p.last = e.Phase
		return
	}
	p.bar.Describe(fmt.Sprintf("%s: %s: %s", p.what, e.Phase, Clean(e.Message)))
	total := e.Total
	if total == 0 {
		total = -1 // a spinner
	}
	if p.bar.GetMax64() != total {
		p.bar.ChangeMax64(total)
	}
	_ = p.bar.Set64(min(e.Done, max(total-1, 0))) // the bar must not end with a phase
}

// Tick shows that time passes.
func (p *Progress) Tick() {
	if p.bar != nil {
		_ = p.bar.RenderBlank() // a bar that cannot be drawn hides nothing
	}
}

// End removes the bar.
func (p *Progress) End() {
	if p.bar != nil {
		_ = p.bar.Finish() // a bar that cannot be drawn hides nothing
	}
}
