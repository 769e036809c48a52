package prove

import (
	"context"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/doctor"
	"github.com/modbox/modbox/internal/driver/fake"
	"github.com/modbox/modbox/internal/sandbox"
)

// withoutForks are the rows that the fake driver can do: its forks have no memory.
var withoutForks = slices.DeleteFunc(slices.Clone(clusterRows), func(r clusterRow) bool { return r.name == forkRow })

// tryCluster proves a server, and checks that it has no sandbox and no drained worker afterwards.
func tryCluster(t *testing.T, ctx context.Context, s *apitest.Server, at string) map[string]doctor.Result {
	t.Helper()
	api, err := client.New(at, s.Token, client.WithAttempts(1))
	if err != nil {
		t.Fatal(err)
	}
	var seen []doctor.Result
	results := runCluster(ctx, ClusterOptions{API: api, Image: "modbox/code-exec"}, withoutForks, func(r doctor.Result) { seen = append(seen, r) })
	if !slices.Equal(results, seen) || len(results) != len(withoutForks)+1 {
		t.Errorf("the results are %+v, and %d of %d were seen", results, len(seen), len(withoutForks)+1)
	}
	found := map[string]doctor.Result{}
	for _, r := range results {
		t.Logf("%+v", r)
		found[r.Name] = r
	}
	live, err := s.Store.Sandboxes.LiveSandboxes(t.Context())
	if err != nil || len(live) > 0 {
		t.Errorf("sandboxes remain: %+v, %v", live, err)
	}
	api, err = client.New(s.URL, s.Token)
	if err != nil {
		t.Fatal(err)
	}
	for w, err := range api.Workers.List().All(t.Context()) {
		if err != nil || w.Sandboxes > 0 || w.Draining && w.Name != "drained" {
			t.Errorf("the worker afterwards: %+v, %v", w, err)
		}
	}
	return found
}

// check checks the results: rows from failed on, if that is not "", were not tried, but "nothing left".
func check(t *testing.T, results map[string]doctor.Result, failed, text string) {
	t.Helper()
	want := doctor.OK
	for _, row := range append(slices.Clone(withoutForks), clusterRow{name: "nothing left"}) {
		r := results[row.name]
		switch row.name {
		case failed:
			if r.Status != doctor.Fail || !strings.Contains(r.Detail, text) {
				t.Errorf("the row that fails is %+v, want %q", r, text)
			}
			want = doctor.Untried
			continue
		case "nothing left":
			want = doctor.OK
		}
		if r.Status != want {
			t.Errorf("%+v, want %s", r, want)
		}
	}
}

func TestCluster(t *testing.T) {
	s, _ := apitest.NewOnWorkers(t, "one", "two")
	results := tryCluster(t, t.Context(), s, s.URL)
	check(t, results, "", "")
	for name, text := range map[string]string{
		"workers": "2 of 2 take sandboxes: one has 4.0 GiB of 4.0 GiB for more", "create": "runs on one", "drain": "one gets no sandbox; two can",
		"resume": "another worker, two", "counter goes on": "goes on with 2", "undrain": "one gets",
	} {
		if r := results[name]; !strings.Contains(r.Detail, text) {
			t.Errorf("%+v, want %q", r, text)
		}
	}
}

// TestClusterOfOneWorker: the move is not tried, which the result says, and all else is.
func TestClusterOfOneWorker(t *testing.T) {
	s, _ := apitest.NewOnWorkers(t, "one")
	results := tryCluster(t, t.Context(), s, s.URL)
	for name, r := range results {
		want, text := doctor.OK, ""
		switch name {
		case "drain":
			want, text = doctor.Untried, "the move to another was not tried"
		case "undrain":
			want = doctor.Untried
		case "resume":
			text = "on the same worker, one"
		}
		if r.Status != want || !strings.Contains(r.Detail, text) {
			t.Errorf("%+v, want %s with %q", r, want, text)
		}
	}
}

// TestClusterWithADrainedWorker: a drain of somebody else stays, and is reported.
func TestClusterWithADrainedWorker(t *testing.T) {
	s, _ := apitest.NewOnWorkers(t, "one", "drained")
	s.Want(200, "PATCH", "/v1/workers/drained", map[string]any{"draining": true})
	results := tryCluster(t, t.Context(), s, s.URL)
	if r := results["workers"]; r.Status != doctor.Warn || !strings.Contains(r.Fix, "modbox workers undrain drained") {
		t.Errorf("the workers: %+v", r)
	}
	if r := results["drain"]; r.Status != doctor.Untried || !strings.Contains(r.Detail, "no other worker") {
		t.Errorf("the drain: %+v", r)
	}
	if r := results["resume"]; r.Status != doctor.OK {
		t.Errorf("the resume: %+v", r)
	}
}

// TestClusterWithoutAWorker: all workers are drained.
func TestClusterWithoutAWorker(t *testing.T) {
	s, _ := apitest.NewOnWorkers(t, "drained")
	s.Want(200, "PATCH", "/v1/workers/drained", map[string]any{"draining": true})
	check(t, tryCluster(t, t.Context(), s, s.URL), "workers", "no worker takes sandboxes: drained is being drained")
}

// TestClusterWhoseWorkerIsGone removes the worker of the sandbox after the pause, as the Pod of a paused sandbox is removed.
func TestClusterWhoseWorkerIsGone(t *testing.T) {
	for _, at := range []string{"the pause", "the list of workers"} {
		s, _ := apitest.NewOnWorkers(t, "one", "two")
		target, err := url.Parse(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		var paused, gone atomic.Bool
		forward := httputil.NewSingleHostReverseProxy(target)
		forward.ModifyResponse = func(r *http.Response) error {
			pause := strings.HasSuffix(r.Request.URL.Path, "/pause")
			paused.CompareAndSwap(false, pause)
			if paused.Load() && pause == (at == "the pause") && !gone.Swap(true) {
				s.Want(204, "DELETE", "/v1/workers/one?force=true", nil)
			}
			return nil
		}
		front := httptest.NewServer(forward)
		results := tryCluster(t, t.Context(), s, front.URL)
		front.Close()
		for name, r := range results {
			want := doctor.OK
			if at == "the pause" && (name == "drain" || name == "undrain") {
				want = doctor.Untried
			}
			if r.Status != want {
				t.Errorf("removed after %s: %+v, want %s", at, r, want)
			}
		}
		if r := results["resume"]; !strings.Contains(r.Detail, "another worker, two") {
			t.Errorf("removed after %s: %+v", at, r)
		}
	}
}

// TestClusterFails breaks a row, and checks that the proof undoes what the rows before it did.
func TestClusterFails(t *testing.T) {
	s, hosts := apitest.NewOnWorkers(t, "one", "two")
	hosts["two"].SetFaults(fake.Faults{Restore: fake.Fail(sandbox.Errorf(sandbox.Unsupported, "another processor"))})
	check(t, tryCluster(t, t.Context(), s, s.URL), "resume", "another processor")
	hosts["two"].SetFaults(fake.Faults{})
	hosts["one"].SetFaults(fake.Faults{Checkpoint: fake.Fail(sandbox.Errorf(sandbox.DiskFull, "no space"))})
	hosts["two"].SetFaults(fake.Faults{Checkpoint: fake.Fail(sandbox.Errorf(sandbox.DiskFull, "no space"))})
	check(t, tryCluster(t, t.Context(), s, s.URL), "pause", "no space")
}

// TestClusterOfAnotherKind: a server without workers, and a caller who is no administrator.
func TestClusterOfAnotherKind(t *testing.T) {
	s := apitest.New(t)
	check(t, tryCluster(t, t.Context(), s, s.URL), "workers", "modbox doctor --prove")
	s.Want(201, "POST", "/v1/users", map[string]any{"name": "tina", "password": "correct horse"})
	var session struct {
		Access string `json:"access_token"`
	}
	s.Want(200, "POST", "/v1/auth/login", map[string]any{"username": "tina", "password": "correct horse"}).Into(t, &session)
	api, err := client.New(s.URL, session.Access)
	if err != nil {
		t.Fatal(err)
	}
	if r := RunCluster(t.Context(), ClusterOptions{API: api}, nil); r[0].Status != doctor.Fail || !strings.Contains(r[0].Detail, "administrator") {
		t.Errorf("the workers without rights: %+v", r[0])
	}
}

// TestClusterInterrupted ends the context at the first request of each kind, or loses its answer.
func TestClusterInterrupted(t *testing.T) {
	s, _ := apitest.NewOnWorkers(t, "one", "two")
	target, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"POST /v1/sandboxes", "POST /exec", "POST /pause", "PATCH /v1/workers/worker-one", "POST /resume"} {
		method, path, _ := strings.Cut(at, " ")
		for _, lose := range []bool{false, true} {
			if lose && path == "/v1/sandboxes" {
				continue // its idempotency key lets the client repeat it
			}
			t.Run(fmt.Sprint(at, lose), func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var met atomic.Bool
				forward := httputil.NewSingleHostReverseProxy(target)
				forward.ErrorLog = log.New(io.Discard, "", 0)
				front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Method != method || !strings.HasSuffix(r.URL.Path, path) || met.Swap(true) {
						forward.ServeHTTP(w, r)
						return
					}
					if !lose {
						cancel()
						forward.ServeHTTP(w, r)
						return
					}
					forward.ServeHTTP(httptest.NewRecorder(), r)
					panic(http.ErrAbortHandler)
				}))
				defer front.Close()
				results := tryCluster(t, ctx, s, front.URL)
				if !met.Load() {
					t.Fatal("the request was not made")
				}
				if r := results["destroy"]; r.Status != doctor.Untried {
					t.Errorf("the last row: %+v", r)
				}
				if r := results["nothing left"]; r.Status != doctor.OK {
					t.Errorf("%+v", r)
				}
				if failed := doctor.Failed(slices.Collect(maps.Values(results))); failed != lose {
					t.Errorf("the proof failed: %t, want %t", failed, lose)
				}
			})
		}
	}
}
