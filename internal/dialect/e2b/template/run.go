package template

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/modbox/modbox/internal/build"
	"github.com/modbox/modbox/internal/sandbox"
)

// baseStep is the step of the base image in logs.
const baseStep = "base"

// Start starts a build that waits, on top of the image from. It goes on after ctx has ended. Errors: Invalid,
// naming the field, for a recipe that cannot be built, and then the build goes on waiting; Conflict for a build
// that was started; Unavailable while the server stops.
func (b *Builds) Start(o *Build, from string, r *Recipe) error {
	if !o.waiting() {
		return o.startedAlready()
	}
	if from == "" || strings.HasPrefix(from, "-") || strings.ContainsAny(from, " \t\r\n") {
		return sandbox.InvalidField("fromImage", "%.100q is not the reference of an image", from)
	}
	d, err := r.dockerfile(from, o.cpuCount, o.memoryMB)
	if err != nil {
		return err
	}
	uploads, err := b.take(o, r)
	if err != nil {
		return err
	}
	started := b.deps.Work.Go(func() {
		defer b.places.drop(uploads)
		reason := b.run(b.deps.Work.Context(), o, d, r, uploads)
		if reason != nil {
			o.say(b.now(), "error", reason.Message, reason.Step)
		}
		o.end(b.now(), reason)
	})
	if !started {
		b.places.drop(uploads)
		o.end(b.now(), &Reason{Message: "the server stops"})
		return sandbox.Errorf(sandbox.Unavailable, "the server stops")
	}
	return nil
}

// take takes the files of a build that waits, which is building then.
func (b *Builds) take(o *Build, r *Recipe) (uploads, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.status != Waiting {
		return nil, o.startedAlready()
	}
	taken, err := b.places.take(o.owner(), r.Steps)
	if err != nil {
		return nil, err
	}
	o.status = Building
	return taken, nil
}

func (o *Build) startedAlready() error {
	return sandbox.Errorf(sandbox.Conflict, "the build %s was started already", o.ID)
}

// run builds an image with the first tag, and gives it the others. It returns why that failed.
func (b *Builds) run(ctx context.Context, o *Build, d *dockerfile, r *Recipe, files uploads) *Reason {
	read, write := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = write.CloseWithError(writeContext(write, r.Steps, files)) // never fails
	}()
	first := o.Template + ":" + Internal(o.Tags[0])
	_, err := b.deps.Builder.Build(ctx, o.caller, build.Request{
		Tag: first, Source: d.source.Bytes(), NoCache: r.forced(), Network: b.deps.Network(),
		Resources: sandbox.Resources{CPUMilli: o.cpuCount * 1000, MemoryBytes: o.memoryMB << 20},
	}, read, func(e build.Event) { b.report(o, d, e) })
	_ = read.Close() // ends the writer
	<-done
	if err != nil {
		b.logFault(o, err)
		return reasonOf(d, err)
	}
	for _, tag := range o.Tags[1:] {
		if err := b.tag(ctx, o.caller, first, o.Template+":"+Internal(tag)); err != nil {
			b.logFault(o, err)
			return &Reason{Message: fmt.Sprintf("the tag %q: %s", tag, messageOf(err))}
		}
	}
	return nil
}

// report adds what happens in a build to its log.
func (b *Builds) report(o *Build, d *dockerfile, e build.Event) {
	switch e.Kind {
	case build.KindStep:
		step := d.stepOf(e.Line)
		text := e.Instruction
		if e.Cached {
			text += " (cached)"
		}
		o.say(b.now(), "info", fmt.Sprintf("[%d/%d] %s", e.Step, e.Steps, text), stepName(step))
	case build.KindOutput:
		for line := range strings.Lines(strings.ToValidUTF8(string(e.Output), "�")) {
			o.say(b.now(), "info", strings.TrimRight(line, "\r\n"), "")
		}
	case build.KindWarning:
		o.say(b.now(), "warn", e.Warning, "")
	case build.KindProgress:
		if e.Progress.Message != "" {
			o.say(b.now(), "debug", e.Progress.Message, "")
		}
	}
}

// stepName returns the name of a step in logs.
func stepName(step int) string {
	if step == 0 {
		return baseStep
	}
	return strconv.Itoa(step)
}

// reasonOf explains the failure of a build by its step instead of a line.
func reasonOf(d *dockerfile, err error) *Reason {
	message := messageOf(err)
	var f *build.Failure
	if !errors.As(err, &f) || f.Line == 0 {
		return &Reason{Message: message}
	}
	return &Reason{Message: strings.TrimPrefix(message, fmt.Sprintf("line %d: ", f.Line)), Step: stepName(d.stepOf(f.Line))}
}

// messageOf returns the message of an error for a client.
func messageOf(err error) string {
	var coded *sandbox.Error
	switch {
	case errors.As(err, &coded):
		return coded.Message
	case errors.Is(err, context.Canceled):
		return "the build ended with the server"
	default:
		return "an internal error; the log of the server has its cause"
	}
}

// logFault logs the error of a build that is a fault of the server.
func (b *Builds) logFault(o *Build, err error) {
	if sandbox.CodeOf(err) == sandbox.Internal && !errors.Is(err, context.Canceled) {
		b.deps.Logger.Error("build of a template", "template", o.Template, "build", o.ID, "workspace", o.caller.Workspace, "err", err)
	}
}

// emptyContext is a tar without files.
var emptyContext = make([]byte, 1024)

// tag gives an image of a workspace another name: a build without steps.
func (b *Builds) tag(ctx context.Context, c sandbox.Caller, from, to string) error {
	_, err := b.deps.Builder.Build(ctx, c, build.Request{Tag: to, Source: []byte("FROM " + from + "\n")}, bytes.NewReader(emptyContext), func(build.Event) {})
	return err
}
