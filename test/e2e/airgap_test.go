package e2e_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/modbox/modbox/test/testserver"
)

// withoutNetwork are the steps of docs/operate/air-gapped.md on the machine without network.
const withoutNetwork = `set -eu
ip link set lo up
if [ -n "$(ip route)" ]; then echo "there is a route"; exit 1; fi
"$MODBOX" images import "$FILE"
"$MODBOX" server 2>"$MODBOX_STATE_DIR/log" &
server=$!
trap 'kill -TERM "$server"; wait "$server" || true; cat "$MODBOX_STATE_DIR/log" >&2' EXIT
while ! [ -s "$MODBOX_STATE_DIR/address" ]; do kill -0 "$server"; sleep 0.1; done
"$MODBOX" images ls
[ "$("$MODBOX" run modbox/base -- echo it works)" = "it works" ]
if "$MODBOX" run nothing/here -- true; then exit 1; fi
"$MODBOX" rm --all --yes
`

// TestAirGapped brings an image to a machine whose only network is loopback, and starts a sandbox there.
func TestAirGapped(t *testing.T) {
	s := testserver.StartSmall(t)
	file := filepath.Join(t.TempDir(), "base.tar")
	if _, errOut, code := run(t, s, "", "images", "export", "modbox/base", file, "--state-dir", s.StateDir); code != 0 {
		t.Fatalf("export: %d: %s", code, errOut)
	}
	dir, err := os.MkdirTemp("/tmp", "mbx") // short, for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", "--net", "bash", "-c", withoutNetwork)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "MODBOX=" + testserver.Binary(t), "FILE=" + file, "MODBOX_LISTEN=127.0.0.1:0",
		"MODBOX_STATE_DIR=" + filepath.Join(dir, "s"), "MODBOX_RUN_DIR=" + filepath.Join(dir, "r"), "MODBOX_IMAGES_DEFAULT_REGISTRY=", "MODBOX_POOL_SIZE=0",
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
}
