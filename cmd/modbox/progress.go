package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/image"
)

const (
	// startMax is the longest time that commands wait for a sandbox to run. What is
	// made for it first may take an image's and a build's time, and wait its turn.
	startMax = 30 * time.Minute
	// quietStart is how long a sandbox may take to start before it is shown why.
	quietStart = time.Second
)

// start makes a sandbox and waits until it runs or has ended. While its image or
// dependencies are made first, it shows how that goes. A sandbox that was made
// is returned with an error, too.
func (a *app) start(ctx context.Context, c *client.Client, o client.CreateOptions) (*client.Sandbox, error) {
	o.WaitUpTo = quietStart
	made, err := c.Create(ctx, o)
	if err != nil || made.State != client.Provisioning {
		return made, err
	}
	show := newProgress(a, clean(cmp.Or(made.Image, made.Name)))
	defer show.end()
	wait, cancel := context.WithTimeout(ctx, startMax)
	defer cancel()
	over := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { showMaking(wait, c, made.ID, show, over) })
	sb, err := c.Wait(wait, made.ID, client.Running)
	late := ctx.Err() == nil && wait.Err() != nil
	close(over)
	watching.Wait()
	switch {
	case late:
		return made, fmt.Errorf("sandbox %s does not run after %v; \"modbox events %s\" shows what it is at", clean(made.Name), startMax, made.ID)
	case err != nil:
		return made, err
	}
	return sb, nil
}

// showMaking shows what is made for a sandbox, until that is over or its events
// cannot be had: whoever waits for the sandbox learns why.
func showMaking(ctx context.Context, c *client.Client, id string, show *progress, over <-chan struct{}) {
	var last int64
	for {
		list, err := c.Events(ctx, id, client.EventsOptions{After: last, Limit: eventsPage})
		if err != nil {
			return
		}
		for _, e := range list {
			last = e.Seq
			if phase := e.Data["phase"]; e.Type == "image_building" && phase != "" {
				total, _ := strconv.ParseInt(e.Data["total"], 10, 64) // 0 when it is not known
				show.event(image.Event{Phase: image.Phase(clean(phase)), Message: e.Data["detail"], Total: total})
			}
		}
		show.tick()
		select {
		case <-over:
			return
		case <-time.After(eventsPause):
		}
	}
}

// progress shows a build: a bar on a terminal, a line per phase elsewhere.
type progress struct {
	a    *app
	what string
	bar  *progressbar.ProgressBar // nil without a terminal
	last image.Phase
}

func newProgress(a *app, what string) *progress {
	p := &progress{a: a, what: what}
	if f, ok := a.stderr.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.bar = progressbar.NewOptions64(-1,
			progressbar.OptionSetWriter(f), progressbar.OptionSetDescription(what), progressbar.OptionClearOnFinish(),
			progressbar.OptionSetWidth(20), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionSpinnerType(14),
			progressbar.OptionShowCount(), progressbar.OptionSetElapsedTime(true))
	}
	return p
}

func (p *progress) event(e image.Event) {
	if p.bar == nil {
		if e.Phase != p.last && e.Phase != image.PhaseDone {
			fmt.Fprintf(p.a.stderr, "%s: %s: %s\n", p.what, e.Phase, clean(e.Message))
		}
		p.last = e.Phase
		return
	}
	p.bar.Describe(fmt.Sprintf("%s: %s: %s", p.what, e.Phase, clean(e.Message)))
	total := e.Total
	if total == 0 {
		total = -1 // a spinner
	}
	if p.bar.GetMax64() != total {
		p.bar.ChangeMax64(total)
	}
	_ = p.bar.Set64(min(e.Done, max(total-1, 0))) // the end of a phase is not the bar's end
}

// tick shows that time goes by.
func (p *progress) tick() {
	if p.bar != nil {
		_ = p.bar.RenderBlank() // a bar that cannot be drawn hides nothing
	}
}

// end takes the bar away.
func (p *progress) end() {
	if p.bar != nil {
		_ = p.bar.Finish() // a bar that cannot be drawn hides nothing
	}
}
