package cli

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/cli/base"
)

// slowHost is a host whose sandbox waits for its image until its events were read.
type slowHost struct {
	*host
	end    wire.Sandbox // its state in the end
	shown  sync.Once
	events chan struct{} // closed when the events were read
}

func (h *slowHost) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasSuffix(r.URL.Path, "/events"):
		_ = json.NewEncoder(w).Encode(wire.Page[wire.Event]{Items: []wire.Event{
			{Seq: 1, Type: "created", Message: "asked for"},
			{Seq: 2, Type: "image_building", Data: map[string]string{"phase": "downloading", "detail": "lists"}},
			{Seq: 3, Type: "image_building", Data: map[string]string{"phase": "installing", "detail": "sl \x1b[2J"}},
		}})
		h.shown.Do(func() { close(h.events) })
	case strings.HasSuffix(r.URL.Path, "/wait"):
		select {
		case <-h.events:
			_ = json.NewEncoder(w).Encode(h.end)
		case <-r.Context().Done():
		}
	default:
		h.host.ServeHTTP(w, r)
	}
}

func newSlowHost(t *testing.T, end wire.Sandbox) *slowHost {
	h := &slowHost{host: newHost(t), end: end, events: make(chan struct{})}
	h.create.State = "provisioning"
	return h
}

func TestMakingIsShown(t *testing.T) {
	const want = "modbox/code-exec:latest: downloading: lists\nmodbox/code-exec:latest: installing: sl \ufffd[2J\n"
	h := newSlowHost(t, demo())
	if r := invoke(t, h, "", "create", "modbox/code-exec"); r.code != 0 || r.stdout != demo().ID+"\n" || r.stderr != want {
		t.Errorf("create = %+v, want the phases on stderr: %q", r, want)
	}
	h = newSlowHost(t, demo())
	if r := invoke(t, h, "", "run", "modbox/code-exec", "--", "echo", "ran"); r.code != 0 || r.stdout != "ran\n" || r.stderr != want {
		t.Errorf("run = %+v, want the phases on stderr: %q", r, want)
	}
	if !slices.Contains(h.called(), "DELETE") {
		t.Errorf("calls = %v, want the sandbox destroyed", h.called())
	}
	h = newSlowHost(t, failed())
	if r := invoke(t, h, "", "run", "modbox/code-exec", "true"); r.code != base.ExitInternal || !strings.HasPrefix(r.stderr, want) || !strings.Contains(r.stderr, "limit of 512Mi") {
		t.Errorf("run of one that fails = %+v, want the phases and the cause", r)
	}
}
