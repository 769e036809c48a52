package cli

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/api"
	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/cli/base"
	"github.com/modbox/modbox/internal/store/workerrows"
	"github.com/modbox/modbox/internal/worker"
)

func TestWorkers(t *testing.T) {
	dir, st := stateDir(t)
	rows := workerrows.New(st.DB)
	now := time.Now()
	for _, w := range []worker.Record{
		{Identity: worker.Identity{ID: "w-1", Key: "aa"}, Name: "one", Status: worker.Ready, MemoryBytes: 8 << 30, Cores: 4, JoinedAt: now, SeenAt: now},
		{Identity: worker.Identity{ID: "w-2", Key: "bb"}, Name: "two", Status: worker.Draining, JoinedAt: now, SeenAt: now},
	} {
		if err := rows.Save(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	workers := func(args ...string) result {
		t.Helper()
		return invoke(t, nil, "", append(append([]string{"workers"}, args...), "--state-dir", dir)...)
	}
	if r := workers("ls"); r.code != 0 || !strings.Contains(r.stdout, "one") || !strings.Contains(r.stdout, "8.0 GiB") || !strings.Contains(r.stdout, "draining") {
		t.Errorf("ls = %+v", r)
	}
	unlock := runServer(t, dir, "127.0.0.1:1")
	if r := workers("rm", "one"); r.code != base.ExitFailure || r.stdout != "" {
		t.Errorf("rm beside a server = %+v, want it refused", r)
	}
	unlock()
	if r := workers("rm", "three"); r.code != base.ExitFailure || !strings.Contains(r.stderr, "three") {
		t.Errorf("rm of an unknown worker = %+v", r)
	}
	if r := workers("rm", "one"); r.code != 0 {
		t.Errorf("rm = %+v", r)
	}
	list, err := rows.List(t.Context())
	if err != nil || list[0].Status != worker.Gone || list[0].Name != "w-1" || list[0].Key != "aa" || list[1].Status != worker.Draining {
		t.Errorf("the records are %+v, %v", list, err)
	}
	if r := workers("ls", "--json"); r.code != 0 || strings.Contains(r.stdout, "w-1") || !strings.Contains(r.stdout, `"name": "two"`) || strings.Contains(r.stdout, "bb") {
		t.Errorf("ls --json = %+v", r)
	}
	if r := workers("rm", "w-1"); r.code != base.ExitFailure {
		t.Errorf("rm of a removed worker = %+v", r)
	}
}

// TestWorkersOfServer lists, drains and removes workers over the API.
func TestWorkersOfServer(t *testing.T) {
	d := apitest.Workers(t, "one", "two")
	s := apitest.NewWith(t, func(_ *api.Config, deps *api.Deps) { deps.Workers = d })
	workers := func(args ...string) result {
		t.Helper()
		return invoke(t, nil, "", append([]string{"--url", s.URL, "--token", s.Token, "workers"}, args...)...)
	}
	id, on := apitest.NewWorkerBox(t, d)
	if on != "one" {
		t.Fatalf("the box is on %q", on)
	}
	if r := workers("ls"); r.code != 0 || !regexp.MustCompile(`worker-one +one +connected +1 +1\.0 GiB +4\.0 GiB +8\.0 GiB +4 +1\.0 `).MatchString(r.stdout) {
		t.Errorf("ls = %+v", r)
	}
	if r := workers("drain", "one"); r.code != 0 || r.stdout+r.stderr != "" {
		t.Errorf("drain = %+v", r)
	}
	if r := workers("show", "one"); r.code != 0 || !strings.Contains(r.stdout, "connected, draining") {
		t.Errorf("show = %+v", r)
	}
	if r := workers("rm", "one"); r.code != base.ExitFailure || !strings.Contains(r.stderr, "drain it first") {
		t.Errorf("rm of a worker with a sandbox = %+v", r)
	}
	// The sandbox ends when the command has asked for it once.
	target, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan struct{})
	var once sync.Once
	forward := httputil.NewSingleHostReverseProxy(target)
	forward.ModifyResponse = func(r *http.Response) error {
		if r.Request.Method == http.MethodGet {
			once.Do(func() { close(asked) })
		}
		return nil
	}
	proxy := httptest.NewServer(forward)
	defer proxy.Close()
	ended := make(chan error, 1)
	go func() {
		<-asked
		ended <- d.Destroy(t.Context(), id)
	}()
	if r := invoke(t, nil, "", "--url", proxy.URL, "--token", s.Token, "workers", "drain", "--wait", "one"); r.code != 0 || r.stderr != "one has 1 sandboxes\n" {
		t.Errorf("drain --wait = %+v", r)
	}
	once.Do(func() { close(asked) })
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if r := workers("rm", "one"); r.code != 0 {
		t.Errorf("rm = %+v", r)
	}
	if r := workers("undrain", "one"); r.code != base.ExitFailure {
		t.Errorf("undrain of a removed worker = %+v", r)
	}
	if r := workers("rm", "--force", "two"); r.code != 0 {
		t.Errorf("rm --force = %+v", r)
	}
	if r := workers("ls", "--json"); r.code != 0 || strings.TrimSpace(r.stdout) != "[]" {
		t.Errorf("ls --json = %+v", r)
	}
}
