package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// TestOfflineMachineIsSeeded exports the default image of one state directory, and
// imports it on a machine that has neither tools to build images nor a registry. Its
// server runs a sandbox.
func TestOfflineMachineIsSeeded(t *testing.T) {
	builder := testserver.Start(t)
	archive := filepath.Join(t.TempDir(), "code-exec.tar")
	t.Setenv("PATH", t.TempDir()) // without mmdebstrap, npm and the rest
	state := t.TempDir()
	modbox := func(stateDir string, args ...string) string {
		t.Helper()
		cmd := exec.Command(testserver.Binary(t), args...)
		cmd.Env = append(os.Environ(), "MODBOX_STATE_DIR="+stateDir, "MODBOX_IMAGES_DEFAULT_REGISTRY=")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("modbox %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	modbox(builder.StateDir, "images", "export", "code-exec", archive)
	if out := modbox(state, "images", "import", archive); !strings.Contains(out, "modbox/code-exec") {
		t.Errorf("images import says %q, want the name of the image", out)
	}
	if out := modbox(state, "images", "build", "code-exec"); !strings.Contains(out, "modbox/code-exec") {
		t.Errorf("images build of an image that was imported says %q", out)
	}
	t.Setenv("MODBOX_TEST_IMAGE_DIR", t.TempDir()) // no other images
	s := testserver.StartIn(t, state)
	sb := s.MustCreate(client.CreateOptions{}) // the default image
	if res := s.Bash(sb.ID, "python3 -c 'print(6*7)'", time.Minute); string(res.Stdout) != "42\n" {
		t.Errorf("the sandbox answers %+v", res)
	}
	if want := builder.MustCreate(client.CreateOptions{}); sb.ImageDigest != want.ImageDigest {
		t.Errorf("the sandbox has image %s, want %s", sb.ImageDigest, want.ImageDigest)
	}
}
