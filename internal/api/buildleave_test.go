package api_test

import (
	"archive/tar"
	"context"
	"io"
	"testing"
	"testing/fstest"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/api"
	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/build"
	"github.com/modbox/modbox/internal/image"
)

// stuckHost runs commands that do not end by themselves.
type stuckHost struct {
	turnHost
	running chan struct{}
	over    <-chan struct{} // closed at the end of the test
}

func (h *stuckHost) Run(ctx context.Context, _ build.Command, _ func([]byte), _ io.Writer) (agentapi.Exit, error) {
	close(h.running)
	select {
	case <-ctx.Done():
		return agentapi.Exit{}, ctx.Err()
	case <-h.over:
		return agentapi.Exit{}, context.Canceled
	}
}

// TestBuildWhoseClientLeaves: the build ends at once, and not only at the next ping that
// cannot be sent.
func TestBuildWhoseClientLeaves(t *testing.T) {
	host := &stuckHost{turnHost: *newTurnHost(), running: make(chan struct{}), over: t.Context().Done()}
	close(host.turn)
	images, err := image.Open(t.TempDir(), fstest.MapFS{}, image.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := apitest.NewWith(t, func(cfg *api.Config, deps *api.Deps) {
		cfg.Ping = time.Hour
		deps.Builder = build.New(build.Config{}, host, images)
	})
	resp, err := beginBuild(t, s, "FROM scratch\nWORKDIR /\nCOPY . /w\nRUN [\"/x\"]\n", func(w io.Writer) error { return tar.NewWriter(w).Close() })
	if err != nil {
		t.Fatal(err)
	}
	<-host.running
	_ = resp.Body.Close() // the client leaves
	select {
	case <-host.given:
	case <-time.After(time.Minute):
		t.Error("the build goes on without its client")
	}
}
