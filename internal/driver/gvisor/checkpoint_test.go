package gvisor_test

import (
	"os"
	"path/filepath"
	"testing"

	"gvisor.dev/gvisor/pkg/control/client"
	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/state/statefile"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"
)

// Nothing in how boxes are set up may stand in the way of saving their state:
// gVisor saves a box with open files and listening servers, and the box goes on.
func TestCanBeCheckpointed(t *testing.T) {
	for name, res := range classes {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			g := r.start(t, newSpec(res))
			g.must("echo before > /file; echo before > /tmp/file; httpd -p 127.0.0.1:8080 -h /; sleep 600 < /file >/dev/null 2>&1 &")
			g.agent.Close() // an open port forwarding would hinder it

			var files []*os.File
			for _, part := range []string{"state", "pages-metadata", "pages"} {
				f, err := os.Create(filepath.Join(t.TempDir(), part))
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				files = append(files, f)
			}
			save := control.SaveOpts{
				Metadata:      statefile.CompressionLevelNone.ToMetadata(),
				HavePagesFile: true,
				FilePayload:   urpc.FilePayload{Files: files},
				Resume:        true,
			}
			// The path may be longer than an address of a socket: go there by a link.
			link := filepath.Join("/tmp", "gvt-"+string(g.id))
			if err := os.Symlink(filepath.Join(r.cfg.RunDir, "boxes", string(g.id)), link); err != nil {
				t.Fatal(err)
			}
			defer os.Remove(link)
			// Connections are torn down a moment after they were closed.
			eventually(t, "the checkpoint succeeds", func() error {
				c, err := client.ConnectTo(filepath.Join(link, "ctl.sock"))
				if err != nil {
					return err
				}
				defer c.Close()
				return c.Call(boot.ContMgrCheckpoint, &save, nil)
			})
			for _, f := range files {
				if info, err := f.Stat(); err != nil || info.Size() == 0 {
					t.Errorf("%s is empty", f.Name())
				}
			}
			again := r.connect(t, g.id, g.handle)
			if out := again.must("cat /file /tmp/file; wget -q -O - http://127.0.0.1:8080/file; pidof sleep | wc -w"); out != "before\nbefore\nbefore\n1" {
				t.Errorf("after the checkpoint: %q", out)
			}
		})
	}
}
