package lifecycle

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"gvisor.dev/gvisor/pkg/cleanup"
)

// workbox is a box that no sandbox has: the server runs commands in it and keeps
// what they leave as an image. It has no row, so a server killed meanwhile leaves
// a box that the next one destroys. Its user is done with it when close was called.
//
// What runs in it is as hostile as in any sandbox.
type workbox struct {
	service *Service
	box     *entry
	base    sandbox.Image
	release func()          // of base, which is not removed to save disk meanwhile
	sandbox sandbox.Sandbox // never recorded
	// say, when set, is told every line that a tool writes.
	say func(line string)
}

// workSpec says what work box to make; zero values are the defaults.
type workSpec struct {
	base    string // digest of the root filesystem it starts from
	network bool
	// plainTmp keeps what is written to /tmp, too.
	plainTmp bool
	env      map[string]string // added to the image's
	// resources that are 0 are Config.Build's.
	resources sandbox.Resources
	// reserved is the bytes of the workspace's disk for which the box counts.
	reserved int64
}

// derive makes an image from another one: it runs work in a box made from
// spec.base and lays what that leaves on the base, to be found again by key. The image
// is run as its base is, and counts for the workspace. Only who has a place by
// [Service.make] calls it.
//
// Errors: those of work; NotFound for the base; Unsupported for a power this
// server lacks; QuotaExceeded; as [Layers.Commit].
func (s *Service) derive(ctx context.Context, ws sandbox.WorkspaceID, key string, spec workSpec, work func(context.Context, *workbox) error) (Layered, error) {
	reader, err := s.snapshotter()
	if err != nil {
		return Layered{}, err
	}
	spool, err := s.spool()
	if err != nil {
		return Layered{}, err
	}
	defer func() { _ = spool.Close() }()
	if err := s.workLayer(ctx, spec, reader, spool, work); err != nil {
		return Layered{}, err
	}
	if _, err := spool.Seek(0, io.SeekStart); err != nil {
		return Layered{}, err
	}
	room := func(ctx context.Context, add int64) error { return s.quotas.CheckDiskFor(ctx, ws, spec.reserved, add) }
	return s.layers.CommitCached(ctx, CacheEntry{Key: key, Workspace: ws, Room: room}, spec.base, spool)
}

// workLayer runs work in a work box and writes what that leaves.
func (s *Service) workLayer(ctx context.Context, spec workSpec, reader driver.Snapshotter, into io.Writer, work func(context.Context, *workbox) error) error {
	w, err := s.openWorkbox(ctx, spec)
	if err != nil {
		return err
	}
	defer w.close()
	if err := work(ctx, w); err != nil {
		return err
	}
	if err := w.forgetNetwork(ctx); err != nil {
		return err
	}
	if err := reader.WriteLayer(ctx, w.box.ID, into); err != nil {
		return fmt.Errorf("read what was made in box %s: %w", w.box.ID, err)
	}
	return nil
}

// openWorkbox makes a work box whose agent answers.
func (s *Service) openWorkbox(ctx context.Context, spec workSpec) (*workbox, error) {
	img, rootfs, err := s.images.Resolve(ctx, spec.base)
	if err != nil {
		return nil, err
	}
	release, err := s.layers.Hold(ctx, img.Digest)
	if err != nil {
		return nil, err
	}
	w := &workbox{service: s, box: s.newBox(sandbox.NewID()), base: img, release: release}
	w.sandbox = sandbox.Sandbox{
		ID: w.box.ID, Name: "build", HostLabel: "build-" + string(w.box.ID), Env: spec.env, Resources: spec.resources,
		Network: sandbox.Network{Enabled: spec.network},
	}
	for _, r := range quota.Fields {
		if n := r.Of(&w.sandbox.Resources); *n == 0 {
			*n = *r.Of(&s.cfg.Build)
		}
	}
	s.boxes.reserve(w.box) // so that the sweep does not take it for an orphan
	undo := cleanup.Make(w.close)
	defer undo.Clean()
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StartTimeout)
	defer cancel()
	desc := s.spec(&w.sandbox, rootfs)
	desc.PlainTmp = spec.plainTmp
	if _, err := s.driver.Create(ctx, desc); err != nil {
		return nil, fmt.Errorf("make work box: %w", err)
	}
	if err := s.driver.Start(ctx, w.box.ID); err != nil {
		return nil, fmt.Errorf("start work box %s: %w", w.box.ID, err)
	}
	if spec.network {
		if err := s.plug(ctx, w.box); err != nil {
			return nil, err
		}
	}
	cfg := s.agentConfig(&w.sandbox, &img)
	cfg.Main = nil
	if err := s.configure(ctx, w.box, cfg); err != nil {
		return nil, box.AgentError(err)
	}
	undo.Release()
	return w, nil
}

// close destroys the box. What cannot be destroyed now the sweep finds.
func (w *workbox) close() {
	s := w.service
	w.box.Link.Disconnect(true)
	w.box.Cancel()
	_ = w.box.Agent.Close() // does not fail
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), destroyTimeout)
	defer cancel()
	if err := s.driver.Destroy(ctx, w.box.ID); err != nil {
		s.log.Error("work box not removed, trying again soon", "box", w.box.ID, "error", err)
	}
	s.boxes.remove(w.box)
	w.release()
}

// forgetNetwork takes the network away, with what the agent wrote for it: the
// image is for sandboxes without one, too.
func (w *workbox) forgetNetwork(ctx context.Context) error {
	if !w.sandbox.Network.Enabled {
		return nil
	}
	w.box.Link.Disconnect(true)
	if err := w.files().Remove(ctx, agentapi.OperatorCA, false); err != nil && sandbox.CodeOf(box.AgentError(err)) != sandbox.NotFound {
		return w.explain(ctx, err)
	}
	_, err := w.files().WriteFile(ctx, agentapi.ResolvConf, strings.NewReader(""), agentapi.WriteOptions{Mode: 0o644})
	return w.explain(ctx, err)
}

// files are the files of the box.
func (w *workbox) files() agentapi.Files { return w.box.Agent.Files }

// run runs a command to its end and hands its output, which is both of its
// streams, to output, which may be nil.
//
// Errors: Invalid or NotFound for a command that cannot be run; Unavailable when
// the box ended, saying why.
func (w *workbox) run(ctx context.Context, cmd agentapi.Command, output func([]byte)) (agentapi.Exit, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := w.box.Agent.Exec(ctx, cmd)
	if err != nil {
		return agentapi.Exit{}, w.explain(ctx, err)
	}
	defer func() { _ = stream.Close() }()
	for {
		frame, err := stream.Next()
		if err != nil {
			return agentapi.Exit{}, w.explain(ctx, err)
		}
		switch frame.Type {
		case agentapi.FrameStdout, agentapi.FrameStderr:
			if output != nil {
				output(frame.Data)
			}
		case agentapi.FrameExit:
			return *frame.Exit, nil
		}
	}
}

// endNotice is how long the driver may take to notice the end of a box whose agent is gone.
const endNotice = 1500 * time.Millisecond

// explain gives an error of the agent its code, and says how the box ended when it did.
func (w *workbox) explain(ctx context.Context, err error) error {
	if err == nil || !box.LooksEnded(err) || ctx.Err() != nil {
		return box.AgentError(err)
	}
	wait, cancel := context.WithTimeout(ctx, endNotice)
	defer cancel()
	exit, werr := w.service.driver.Wait(wait, w.box.ID)
	switch {
	case werr != nil:
		return box.AgentError(err)
	case exit.Cause == sandbox.CauseOOM:
		return sandbox.Errorf(sandbox.Unavailable, "it needs more than %s of memory", sandbox.ShowBytes(w.sandbox.Resources.MemoryBytes))
	default:
		return sandbox.Wrap(sandbox.Unavailable, err, "the box in which it was made ended: %s", exit.Detail)
	}
}

// tail keeps the last lines of some output.
type tail struct {
	data []byte
}

// Bounds on what is kept and shown of a tool's output.
const (
	tailBytes = 4 << 10
	tailShown = 800
)

func (t *tail) add(p []byte) {
	t.data = append(t.data, p[max(0, len(p)-tailBytes):]...)
	t.data = slices.Delete(t.data, 0, max(0, len(t.data)-tailBytes))
}

// String returns the last lines that are not empty, on one line.
func (t *tail) String() string {
	shown := ""
	lines := strings.Split(strings.ToValidUTF8(string(t.data), "?"), "\n")
	for _, line := range slices.Backward(lines) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if len(shown)+len(line) > tailShown && shown != "" {
			break
		}
		shown = strings.TrimSuffix(line+"; "+shown, "; ")
	}
	return shown
}

// lineMax bounds a line of a tool's output.
const lineMax = 1 << 10

// liner calls say for each line of what is added, cut to a length.
type liner struct {
	say  func(string)
	line []byte
}

func (l *liner) add(p []byte) {
	for _, c := range p {
		if c != '\n' && c != '\r' {
			if len(l.line) < lineMax {
				l.line = append(l.line, c)
			}
			continue
		}
		if line := strings.TrimSpace(sandbox.OneLine(string(l.line))); line != "" {
			l.say(line)
		}
		l.line = l.line[:0]
	}
}
