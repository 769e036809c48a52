package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/modbox/modbox/client"
)

// dataImage has a Python that is started with the sandbox.
const dataImage = "modbox/data"

// BrowserImage has a browser that is started with the sandbox, which runs when the browser answers.
const BrowserImage = "modbox/chromium"

// StartData creates a sandbox whose Python context has run code.
func (m *Server) StartData(ctx context.Context) (string, error) {
	id, err := m.createOf(ctx, dataImage, client.Resources{CPU: "1"})
	if err == nil {
		_, err = m.Code(id)(ctx)
	}
	return id, err
}

// createOf creates a sandbox of an image and returns when it runs.
func (m *Server) createOf(ctx context.Context, image string, limits client.Resources) (string, error) {
	sb, err := m.c.Sandboxes.Create(ctx, client.CreateOptions{Image: image, Resources: limits, TTL: ttl, WaitUpTo: time.Minute})
	if err != nil {
		return "", err
	}
	if sb.State != client.Running {
		return sb.ID, fmt.Errorf("sandbox %s is %s: %v", sb.ID, sb.State, sb.Cause)
	}
	return sb.ID, nil
}

// AfterCreate is the create of a sandbox of the data image that the server does not have ready, and
// its first call.
func (m *Server) AfterCreate(first func(id string) Op) Op { return afterCreate(m, dataImage, first) }

func afterCreate(m *Server, image string, first func(id string) Op) Op {
	return func(ctx context.Context) (time.Duration, error) {
		took, _, err := createAndCall(ctx, m, image, m.unasked(client.Resources{CPU: "1"}), first)
		return took, err
	}
}

// templates is the metric that has the number of memory templates; older servers lack it.
const templates = "modbox_templates"

// fromTemplate is the create of a sandbox of an image that the server restores from a memory template, and its first call.
func fromTemplate(m *Server, image string, first func(id string) Op) Op {
	limits := client.Resources{CPU: "1", Memory: "1500Mi"}
	return func(ctx context.Context) (time.Duration, error) {
		for range 30 { // it makes one after some creates
			had, unknown := m.metric(ctx, templates)
			if err := takeWarm(ctx, m, image, limits); err != nil {
				return 0, err
			}
			took, restored, err := createAndCall(ctx, m, image, limits, first)
			if err != nil || restored {
				return took, err
			}
			for range 20 { // seconds, without creates, which delay the making of a template
				if err := wait(ctx, time.Second); err != nil {
					return 0, err
				}
				if now, err := m.metric(ctx, templates); unknown != nil || err != nil || now > had {
					break
				}
			}
		}
		return 0, errors.New("the server restores no sandbox from a memory template")
	}
}

// takeWarm takes the boxes that the pool has for an image and limits.
func takeWarm(ctx context.Context, m *Server, image string, limits client.Resources) error {
	return Parallel(poolSize, func(int) error {
		sb, err := m.c.Sandboxes.Create(ctx, client.CreateOptions{Image: image, Resources: limits, TTL: ttl})
		if err != nil {
			return err
		}
		return m.Remove(ctx, sb.ID)
	})
}

// createAndCall creates a sandbox of an image, makes its first call, and removes it. restored reports whether it came from a
// memory template.
func createAndCall(ctx context.Context, m *Server, image string, limits client.Resources, first func(id string) Op) (took time.Duration, restored bool, err error) {
	var id string
	took, err = Timed(func() (err error) {
		if id, err = m.createOf(ctx, image, limits); err != nil {
			return err
		}
		_, err = first(id)(ctx)
		return err
	})
	if id == "" {
		return took, false, err
	}
	for ev, evErr := range m.c.Sandboxes.Events(id, client.EventsOptions{}).All(ctx) {
		if evErr != nil {
			err = cmp.Or(err, evErr)
			break
		}
		restored = restored || ev.Data["from_template"] == "true"
	}
	return took, restored, cmp.Or(err, m.Remove(ctx, id))
}

// AddBrowser measures creates of sandboxes with a browser until it answers. The server must have their image.
func (r *Report) AddBrowser(ctx context.Context, rounds int, m *Server) error {
	answers := func(string) Op { // when the sandbox runs
		return func(context.Context) (time.Duration, error) { return 0, nil }
	}
	return r.Add(ctx, rounds, Line{
		What: "create of a browser (modbox/chromium) from a memory template → CDP answers, API", Ours: fromTemplate(m, BrowserImage, answers),
		Peer: "Modbox API: the same without a template", Theirs: afterCreate(m, BrowserImage, answers), Rounds: 5,
	})
}

// Code is `1+1` in the Python context of a sandbox until its result has arrived.
func (m *Server) Code(id string) Op { return evaluate(m, id, "1+1", "2") }

// pandas is an import of pandas in the Python context of a sandbox until a result has arrived.
func pandas(m *Server, id string) Op {
	return evaluate(m, id, "import pandas\npandas.Series([1, 1]).sum().item()", "2")
}

func evaluate(m *Server, id, code, want string) Op {
	return func(ctx context.Context) (time.Duration, error) {
		return Timed(func() error {
			res, err := m.c.Sandboxes.RunCode(ctx, id, code, client.CodeOptions{})
			if err == nil && (len(res.Results) != 1 || res.Results[0].Data["text/plain"] != want) {
				err = fmt.Errorf("%s = %+v", code, res)
			}
			return err
		})
	}
}

// roundTrip is the time that [Server.Code] takes beyond what its result says about the code.
func roundTrip(m *Server, id string) Op {
	return func(ctx context.Context) (time.Duration, error) {
		var res *client.CodeResult
		took, err := Timed(func() (err error) {
			res, err = m.c.Sandboxes.RunCode(ctx, id, "1+1", client.CodeOptions{})
			return err
		})
		if err != nil {
			return 0, err
		}
		return took - time.Duration(res.DurationMS)*time.Millisecond, nil
	}
}

// AddRoundTrip measures the way to the Python context of a sandbox and back.
func (r *Report) AddRoundTrip(ctx context.Context, rounds int, m *Server, data string) error {
	got, err := Alternate(ctx, rounds, Side{Name: "modbox", Run: roundTrip(m, data)})
	if err != nil {
		return err
	}
	p50 := Quantile(got[0].Samples, .5)
	r.Facts = append(r.Facts, Fact{
		What: "time of `1+1` in a warm Python context beyond what the interpreter takes for it (duration_ms), p50", Ours: Milliseconds(p50),
		Target: "≤ " + Milliseconds(targetRoundTrip), Met: p50 <= targetRoundTrip,
	})
	return nil
}
