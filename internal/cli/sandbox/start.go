package sandbox

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
	"github.com/modbox/modbox/internal/image/phase"
)

const (
	// startMax bounds the wait for a sandbox to run. Its image and dependencies may have to be built
	// first, and may wait for a build slot.
	startMax = 30 * time.Minute
	// quietStart is the time after which the command shows the progress of a start.
	quietStart = time.Second
)

// start creates a sandbox and waits until it runs or has ended. While its image or dependencies are
// built, it shows the progress. It may return a created sandbox together with an error.
func start(ctx context.Context, env *base.Env, c *client.Client, o client.CreateOptions) (*client.Sandbox, error) {
	o.WaitUpTo = quietStart
	made, err := c.Sandboxes.Create(ctx, o)
	if err != nil || made.State != client.Provisioning {
		return made, err
	}
	show := base.NewProgress(env.Stderr, base.Clean(cmp.Or(made.Image, made.Name)))
	defer show.End()
	wait, cancel := context.WithTimeout(ctx, startMax)
	defer cancel()
	over := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { showMaking(wait, c, made.ID, show, over) })
	sb, err := c.Sandboxes.Wait(wait, made.ID, client.Running)
	late := ctx.Err() == nil && wait.Err() != nil
	close(over)
	watching.Wait()
	switch {
	case late:
		return made, fmt.Errorf("sandbox %s does not run after %v; \"modbox events %s\" shows what it is at", base.Clean(made.Name), startMax, made.ID)
	case err != nil:
		return made, err
	}
	return sb, nil
}

// eventsPause is the interval at which the progress of builds is asked for.
const eventsPause = time.Second

// showMaking shows the builds for a sandbox until they end or its events cannot be read: the
// caller, which waits for the sandbox, gets the error.
func showMaking(ctx context.Context, c *client.Client, id string, show *base.Progress, over <-chan struct{}) {
	var last int64
	for {
		for e, err := range c.Sandboxes.Events(id, client.EventsOptions{AfterSeq: last}).All(ctx) {
			if err != nil {
				return
			}
			last = e.Seq
			if name := e.Data["phase"]; e.Type == "image_building" && name != "" {
				total, _ := strconv.ParseInt(e.Data["total"], 10, 64) // 0 if unknown
				show.Event(phase.Event{Phase: phase.Phase(base.Clean(name)), Message: e.Data["detail"], Total: total})
			}
		}
		show.Tick()
		select {
		case <-over:
			return
		case <-time.After(eventsPause):
		}
	}
}
