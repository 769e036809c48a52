package control_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/bench"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/storetest"
)

var (
	ended   = flag.Int("ended", 40, "ended sandboxes in the database")
	live    = flag.Int("live", 10, "sandboxes that run")
	calls   = flag.Int("calls", 8, "calls of each kind")
	clients = flag.Int("clients", 2, "calls at the same time")
	rest    = flag.Duration("rest", time.Millisecond, "how long the server is watched while it has no requests")
)

// server is a running server and what its database has.
type server struct {
	*apitest.Server
	http *http.Client
	via  string // the URL of its standby
	home sandbox.WorkspaceID
	live []string // sandboxes that run
}

// stage has the measurements with a number of sandboxes.
type stage struct {
	name  string
	calls []series
	rest  usage
}

type series struct {
	name    string
	samples []time.Duration
	used    usage // of all
}

// TestControlPlane measures calls with an empty database, with ended sandboxes, and with running sandboxes in addition.
func TestControlPlane(t *testing.T) {
	s := start(t)
	stages := []stage{s.measure("empty")}
	s.fill(*ended)
	stages = append(stages, s.measure(fmt.Sprintf("%d ended", *ended)))
	s.run(*live)
	stages = append(stages, s.measure(fmt.Sprintf("%d ended, %d live", *ended, *live)))
	engine := "SQLite"
	if storetest.Postgres() {
		engine = "PostgreSQL"
	}
	fmt.Print(report(engine, stages)) // before the end of the live sandboxes, which takes long
	s.end(s.live)
}

func start(t *testing.T) *server {
	// The quotas are in force, and never reached.
	const most = 1 << 50
	limits := quota.Limits{quota.LimitSandboxes: most, quota.LimitMemory: most, quota.LimitCPU: most, quota.LimitDisk: most}
	s := &server{Server: apitest.NewLimited(t, 1<<20, limits)}
	var err error
	if s.home, _, err = s.Store.Workspaces.EnsureDefaults(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.http = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: *clients}}
	s.via = s.standby()
	t.Cleanup(s.http.CloseIdleConnections)
	return s
}

// call makes a request and returns its answer.
func (s *server) call(method, path, body string) ([]byte, error) {
	return s.callAt(s.URL, method, path, body)
}

// callAt is call at a URL.
func (s *server) callAt(url, method, path, body string) ([]byte, error) {
	req, err := http.NewRequestWithContext(s.T.Context(), method, url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+s.Token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, bytes.TrimSpace(answer))
	}
	return answer, err
}

// create makes a sandbox and returns its id when it runs.
func (s *server) create() (string, error) { return s.createAt(s.URL) }

// createAt is create at a URL.
func (s *server) createAt(url string) (string, error) {
	answer, err := s.callAt(url, http.MethodPost, "/v1/sandboxes", `{"image": "modbox/code-exec", "labels": {"team": "bench"}, "wait_seconds": 60}`)
	if err != nil {
		return "", err
	}
	var sb struct{ ID, State string }
	if err := json.Unmarshal(answer, &sb); err != nil {
		return "", err
	}
	if sb.State != string(sandbox.Running) {
		return "", fmt.Errorf("sandbox %s is %s, want running", sb.ID, sb.State)
	}
	return sb.ID, nil
}

// each runs f for 0..n-1 with the clients of the measurement, and returns how long each call and all of them took.
func (s *server) each(name string, n int, f func(i int) error) series {
	s.T.Helper()
	out := series{name: name, samples: make([]time.Duration, n)}
	var next atomic.Int64
	var wg sync.WaitGroup
	begin := s.usage()
	for range *clients {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				took, err := bench.Timed(func() error { return f(i) })
				if err != nil {
					s.T.Errorf("%s: %v", name, err)
					return
				}
				out.samples[i] = took
			}
		})
	}
	wg.Wait()
	out.used = s.usage().since(begin)
	if s.T.Failed() {
		s.T.FailNow()
	}
	return out
}

// get measures gets of a path.
func (s *server) get(name, path string) series {
	s.T.Helper()
	return s.each(name, *calls, func(int) error {
		_, err := s.call(http.MethodGet, path, "")
		return err
	})
}

// measure measures calls, and the server at rest. It ends what it makes.
func (s *server) measure(name string) stage {
	s.T.Helper()
	ids := make([]string, *calls)
	creates := s.each("create, until it runs", *calls, func(i int) (err error) {
		ids[i], err = s.create()
		return err
	})
	others := make([]string, *calls)
	throughStandby := s.each("create, through a standby", *calls, func(i int) (err error) {
		others[i], err = s.createAt(s.via)
		return err
	})
	s.end(others)
	m := stage{name: name, calls: []series{
		creates,
		throughStandby,
		s.each("get of a live sandbox", *calls, func(i int) error {
			_, err := s.call(http.MethodGet, "/v1/sandboxes/"+ids[i], "")
			return err
		}),
		s.each("get of a live sandbox, through a standby", *calls, func(i int) error {
			_, err := s.callAt(s.via, http.MethodGet, "/v1/sandboxes/"+ids[i], "")
			return err
		}),
		s.get("list, first page of 100", "/v1/sandboxes?limit=100"),
		s.get("list of one name", "/v1/sandboxes?name=none"),
		s.get("quota and its use", "/v1/workspaces/"+string(s.home)+"/quota"),
		s.each("delete", *calls, func(i int) error {
			_, err := s.call(http.MethodDelete, "/v1/sandboxes/"+ids[i], "")
			return err
		}),
		s.get("get of an ended sandbox", "/v1/sandboxes/"+ids[0]),
		s.get("list of ended, page of 100", "/v1/sandboxes?state=destroyed&limit=100"),
		s.get("events of a sandbox", "/v1/sandboxes/"+ids[0]+"/events"),
	}}
	m.rest = s.watch(*rest)
	return m
}

// run starts n sandboxes that stay.
func (s *server) run(n int) {
	s.T.Helper()
	s.live = make([]string, n)
	s.each("create", n, func(i int) (err error) {
		s.live[i], err = s.create()
		return err
	})
	s.settle()
}

// end ends sandboxes.
func (s *server) end(ids []string) {
	s.T.Helper()
	s.each("delete", len(ids), func(i int) error {
		_, err := s.call(http.MethodDelete, "/v1/sandboxes/"+ids[i], "")
		return err
	})
}
