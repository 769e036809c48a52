package chromium_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/modbox/modbox/images"
	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/gvisor"
	"github.com/modbox/modbox/internal/driver/gvisor/gvisortest"
	"github.com/modbox/modbox/internal/environment"
	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/pool"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/template"
	"github.com/modbox/modbox/internal/warmbox"
)

const chromium = "modbox/chromium"

// timeLimit bounds steps that may hang. A machine may be slow or busy.
const timeLimit = 5 * time.Minute

// askTime is how long a program that hangs is asked.
const askTime = 5 * time.Second

// need skips the test where the suite with the image does not run.
func need(t *testing.T) {
	t.Helper()
	gvisortest.Need(t)
	if os.Getenv("MODBOX_TEST_CHROMIUM") != "1" {
		t.Skip("needs modbox/chromium in the image store MODBOX_TEST_IMAGE_DIR: set MODBOX_TEST_CHROMIUM=1")
	}
}

// rig is a driver, and the images and boxes of a keeper of templates.
type rig struct {
	*gvisor.Driver
	t      *testing.T
	images *image.Store
	img    spec.Image
	rootfs string
	kind   pool.Kind
	work   *background.Group
	// damage is a line of shell that runs in the box that becomes the template, when its programs have started; "" for none.
	damage string
}

func newRig(t *testing.T, damage string) *rig {
	t.Helper()
	r := &rig{t: t, work: background.New(), damage: damage}
	var err error
	check := func() {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	r.images, err = image.Open(os.Getenv("MODBOX_TEST_IMAGE_DIR"), images.FS, image.Options{})
	check()
	r.img, r.rootfs, err = r.images.Resolve(t.Context(), chromium)
	check()
	r.kind = pool.Kind{Digest: r.img.Digest, Resources: sandbox.Resources{MemoryBytes: 1 << 30, CPUMilli: 1000, DiskBytes: 256 << 20}}
	dir := t.TempDir()
	cfg := gvisor.Config{RunDir: filepath.Join(dir, "run"), StateDir: filepath.Join(dir, "state"), Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	cfg.SandboxBinary, cfg.AgentBinary, err = gvisortest.Binaries(dir)
	check()
	r.Driver, err = gvisor.New(cfg)
	check()
	r.work.Start()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeLimit)
		defer cancel()
		r.work.Cancel()
		r.work.Stop()
		err := r.work.Wait(ctx)
		ids, listErr := r.List(ctx)
		err = errors.Join(err, listErr)
		for _, id := range ids {
			err = errors.Join(err, r.Driver.Destroy(ctx, id))
		}
		if err := errors.Join(err, r.Close()); err != nil {
			t.Error(err)
		}
	})
	return r
}

// newBox returns a box that does not exist yet, and its description.
func (r *rig) newBox() (*box.Box, driver.Spec) {
	id := sandbox.NewID()
	agent := agentapi.NewClient(func(ctx context.Context) (net.Conn, error) { return r.Dial(ctx, id, driver.AgentPort) })
	r.t.Cleanup(func() { agent.Close() })
	return box.New(r.work, id, agent), driver.Spec{ID: id, Hostname: "box", RootFS: r.rootfs, Resources: r.kind.Resources}
}

// Resolve implements [template.Images].
func (r *rig) Resolve(ctx context.Context, digest string) (spec.Image, string, error) {
	return r.images.Resolve(ctx, digest)
}

// Runtimes implements [template.Images].
func (r *rig) Runtimes(context.Context) ([]spec.Runtime, error) {
	return []spec.Runtime{{Digest: r.img.Digest}}, nil
}

// MakeNew implements [template.Boxes].
func (r *rig) MakeNew(kind pool.Kind) (*pool.Box[warmbox.Box], error) {
	b, described := r.newBox()
	ctx, cancel := context.WithTimeout(r.work.Context(), timeLimit)
	defer cancel()
	if _, err := r.Create(ctx, described); err != nil {
		return nil, err
	}
	if err := r.Start(ctx, b.ID); err != nil {
		return nil, err
	}
	if err := environment.Prestart(ctx, b, &r.img); err != nil {
		return nil, err
	}
	if r.damage != "" {
		if err := shell(ctx, b, r.damage); err != nil {
			return nil, err
		}
		// Programs that run are not started again, and are asked as long as there is time.
		asking, stop := context.WithTimeout(ctx, askTime)
		defer stop()
		if environment.Prestart(asking, b, &r.img) == nil {
			r.t.Errorf("after %q all programs count as started", r.damage)
		}
	}
	return &pool.Box[warmbox.Box]{Kind: kind, Value: warmbox.Box{Box: b}}, nil
}

// shell runs a line of shell in a box, which must succeed.
func shell(ctx context.Context, b *box.Box, line string) error {
	stream, err := b.Agent.Exec(ctx, agentapi.Command{Argv: []string{"sh", "-c", line}})
	if err != nil {
		return err
	}
	defer stream.Close()
	for {
		f, err := stream.Next()
		if err != nil {
			return err
		}
		if f.Type == agentapi.FrameExit {
			if f.Exit.Code != 0 {
				return fmt.Errorf("%s: exit code %d", line, f.Exit.Code)
			}
			return nil
		}
	}
}

// Destroy implements [template.Boxes].
func (r *rig) Destroy(b *pool.Box[warmbox.Box]) {
	if err := r.Driver.Destroy(context.Background(), b.Value.ID); err != nil {
		r.t.Error(err)
	}
}

// ReserveSpace implements [template.Boxes].
func (*rig) ReserveSpace(pool.Kind) (release func(), ok bool) { return func() {}, true }

// AwaitCalm implements [template.Boxes].
func (r *rig) AwaitCalm() bool { return r.work.Context().Err() == nil }

// awaitTemplate starts a keeper and returns it when it has a template.
func (r *rig) awaitTemplate() *template.Keeper {
	r.t.Helper()
	cfg := template.Config{Dir: filepath.Join(r.t.TempDir(), "templates"), MaxBytes: 1 << 30, CheckFree: func(int64) error { return nil }}
	k := template.New(cfg, template.Deps{Images: r, Driver: r.Driver, Work: r.work, Logger: slog.New(slog.NewTextHandler(r.t.Output(), nil))})
	for range 2 {
		k.Created("w", r.kind)
	}
	r.work.Go(func() { k.Run(r) })
	for deadline := time.Now().Add(timeLimit); !k.Has(r.kind); time.Sleep(10 * time.Millisecond) { // nothing tells
		if time.Now().After(deadline) {
			r.t.Fatalf("no template after %v", timeLimit)
		}
	}
	return k
}

// TestTemplate: a template gives boxes whose programs answer.
func TestTemplate(t *testing.T) {
	need(t)
	r := newRig(t, "")
	k := r.awaitTemplate()
	b, described := r.newBox()
	h, err := k.Restore(t.Context(), b, described, &r.img)
	if err != nil || h == nil || !k.Has(r.kind) {
		t.Fatalf("Restore() = %v, %v, and there is a template: %v", h, err, k.Has(r.kind))
	}
}

// TestHangingProgram: a template in which one of the programs hangs gives no box, so that sandboxes are started without it, and is removed.
func TestHangingProgram(t *testing.T) {
	need(t)
	for name, damage := range map[string]string{
		"Supervisord": "kill -STOP $(cat /tmp/supervisord.pid)",
		"Display":     "pkill -STOP Xvfb",
		"Screen":      "pkill -STOP x11vnc",
		"Nginx":       "pkill -STOP nginx",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of the time they wait for what hangs
			r := newRig(t, damage)
			k := r.awaitTemplate()
			for n := 0; k.Has(r.kind); n++ {
				if n == 3 {
					t.Fatalf("the template is there after %d restores", n)
				}
				b, described := r.newBox()
				if h, err := k.Restore(t.Context(), b, described, &r.img); h != nil || err != nil {
					t.Fatalf("Restore() = %v, %v, want neither a box nor an error", h, err)
				}
			}
		})
	}
}
