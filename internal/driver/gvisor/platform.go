package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/gvisor/agentimage"
	"github.com/modbox/modbox/internal/driver/gvisor/platform"
	"github.com/modbox/modbox/internal/sandbox"
)

// ChoosePlatform chooses the platform of new boxes by a setting, see package platform, and uses it from then on. If
// that is necessary, it runs a box on KVM. Recovered boxes, and the boxes of checkpoints, keep theirs. It must be called before
// boxes are made. Errors: KVM is set and does not work, also
// with the choice; the context's.
func (d *Driver) ChoosePlatform(ctx context.Context, setting string) (platform.Choice, error) {
	return d.choose(ctx, setting, platform.New(d.host.paths.state, d.binary.Name()), platform.KVM)
}

// choose is ChoosePlatform with a chooser, which tries a platform.
func (d *Driver) choose(ctx context.Context, setting string, by platform.Chooser, on platform.Name) (platform.Choice, error) {
	by.Untried = d.host.groups == nil // a process that cannot be killed could be missed
	choice, err := by.Choose(ctx, setting, func(ctx context.Context) error {
		return d.tryPlatform(ctx, on, agentimage.Path, "-h")
	})
	if choice.Platform == "" {
		return choice, err
	}
	d.platform, d.saves.KVM, d.saves.Unsure = choice.Platform, choice.Platform == platform.KVM, choice.Unsure
	return choice, err
}

// tryPlatform runs a small box, and the program argv in it, on a platform, and removes it. Errors: also
// [platform.ErrRemains].
func (d *Driver) tryPlatform(ctx context.Context, on platform.Name, argv ...string) (err error) {
	ctx, leave := d.calls.enter(ctx)
	defer leave()
	spec := driver.Spec{
		ID: sandbox.NewID(), Hostname: "trial", MaxProcesses: driver.DefaultMaxProcesses,
		Resources: sandbox.Resources{MemoryBytes: 256 << 20, CPUMilli: 1000, DiskBytes: sandbox.DiskMin},
	}
	defer func() { // also of what could not be removed in the steps
		wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
		defer cancel()
		var e error
		until(wait, 100*time.Millisecond, func() bool { e = d.Destroy(wait, spec.ID); return e == nil })
		if e != nil && !platform.Short(e) { // a lack shows nothing of the process
			e = fmt.Errorf("%w: %w", platform.ErrRemains, e)
		}
		err = errors.Join(err, e)
	}()
	if _, err := d.createOn(ctx, spec, on); err != nil {
		return err
	}
	if err := d.Start(ctx, spec.ID); err != nil {
		return fmt.Errorf("the guest does not start: %w", ended(ctx, err))
	}
	b, err := d.boxes.lookup(spec.ID)
	if err != nil {
		return err
	}
	return runProgram(ctx, b.agent, argv...)
}

// runProgram waits until the agent of a new box answers, and has it run a program, which must exit with code 0.
func runProgram(ctx context.Context, agent *agentapi.Client, argv ...string) error {
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval = 2 * time.Millisecond
	_, err := backoff.Retry(ctx, func() (agentapi.Health, error) { return agent.Health(ctx) }, backoff.WithBackOff(pauses))
	if err != nil {
		return fmt.Errorf("the agent does not answer: %w", ended(ctx, err))
	}
	run, err := agent.Exec(ctx, agentapi.Command{Argv: argv})
	code := -1
	if err == nil {
		defer run.Close()
		for err == nil {
			var f agentapi.Frame
			if f, err = run.Next(); f.Exit != nil {
				code = f.Exit.Code
			}
		}
	}
	switch {
	case !errors.Is(err, io.EOF):
		return fmt.Errorf("a program does not run: %w", ended(ctx, err))
	case code != 0:
		return fmt.Errorf("a program ended with code %d", code)
	}
	return nil
}
