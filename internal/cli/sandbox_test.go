package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/apierror"
	"github.com/modbox/modbox/internal/cli/base"
	"github.com/modbox/modbox/internal/sandbox"
)

// canned is a server that answers GETs with fixed values, by path.
type canned map[string]any

func (c canned) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v, ok := c[r.URL.Path]
	if !ok {
		apierror.New(sandbox.Errorf(sandbox.NotFound, "there is no %s", r.URL.Path), "req").Write(w)
		return
	}
	_ = json.NewEncoder(w).Encode(v)
}

// The moments are so far away that their age, in the largest unit, does not change while a test runs.
var (
	longAgo = time.Now().Add(-50*time.Hour - 30*time.Minute)
	in10h   = time.Now().Add(10*time.Hour + 30*time.Minute)
	fixed   = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
)

func demo() wire.Sandbox {
	return wire.Sandbox{
		ID: "0192f000-0000-7000-8000-000000000001", Name: "demo", State: "running", URL: "http://127.0.0.1:7070/s/demo-abc",
		Image: "modbox/code-exec:latest", Labels: map[string]string{"team": "a"},
		Resources: wire.Resources{Memory: "512Mi", CPU: "1", Disk: "2Gi"}, CreatedBy: "owner", CreatedAt: longAgo, Deadline: &in10h,
	}
}

func failed() wire.Sandbox {
	sb := demo()
	sb.ID, sb.Name, sb.State, sb.CreatedAt, sb.EndedAt, sb.Deadline = "0192f000-0000-7000-8000-000000000002", "broken", "failed", fixed, &fixed, nil
	sb.Cause = &wire.Cause{Code: "oom", Message: "it used more memory than its limit of 512Mi"}
	return sb
}

func archived() wire.Sandbox {
	sb := demo()
	sb.ID, sb.Name, sb.State, sb.PausedAt, sb.ArchivedAt = "0192f000-0000-7000-8000-000000000003", "stored", "paused", &fixed, &fixed
	return sb
}

func cannedSandboxes() canned {
	live, dead := demo(), failed()
	live.Worker = "worker-1"
	listed := dead
	listed.CreatedAt = longAgo
	used := longAgo
	return canned{
		"/v1/sandboxes":             wire.Page[wire.Sandbox]{Items: []wire.Sandbox{live, listed, archived()}},
		"/v1/sandboxes/broken":      dead,
		"/v1/sandboxes/demo":        live,
		"/v1/sandboxes/broken/wait": dead,
		"/v1/events": wire.Page[wire.Event]{Items: []wire.Event{
			{Seq: 1, SandboxID: dead.ID, SandboxName: "broken", Time: fixed, Type: "created", Message: "asked for"},
			{Seq: 2, SandboxID: dead.ID, SandboxName: "broken", Time: fixed, Type: "failed", Message: "out of memory", Data: map[string]string{"cause": "oom"}},
		}},
		"/v1/sandboxes/" + live.ID + "/stats": wire.Stats{
			Time: fixed, MemoryBytes: 100 << 20, MemoryLimit: 512 << 20, CPUNanos: 1234567890, DiskBytes: 0, DiskLimit: 2 << 30, Processes: 3, HostPSSBytes: 12 << 20,
		},
		"/v1/images": wire.Page[wire.Image]{Items: []wire.Image{
			{ID: "i1", Name: "modbox/code-exec", Tag: "latest", Ref: "modbox/code-exec:latest", Digest: "sha256:1", Description: "Python, Node, Bash, Go", IsDefault: true, SizeBytes: 758 << 20, Memory: "512Mi", UpdatedAt: longAgo},
			{ID: "i2", Name: "modbox/base", Tag: "latest", Ref: "modbox/base:latest", Description: "Small Debian", Memory: "256Mi"},
		}},
		"/v1/sandbox-images": wire.Page[wire.SandboxImage]{Items: []wire.SandboxImage{
			{ID: "i1", Name: "modbox/code-exec", Image: "modbox/code-exec", Tag: "latest", Builtin: true, MemoryMB: 1024},
			{ID: "i3", Name: "agent", Image: "ghcr.io/org/agent", Tag: "v1", Enabled: true, IsDefault: true, MemoryMB: 512, ReadinessPort: 8080, TTLSeconds: 5400, RegistryID: "r1", RegistryName: "ours"},
			{ID: "i4", Name: "old", Image: "ghcr.io/org/old@sha256:1", Enabled: true, MemoryMB: 512, RegistryID: "r2"},
		}},
		"/v1/tokens": wire.Page[wire.Token]{Items: []wire.Token{
			{ID: "t1", Description: "ci", WorkspaceID: "w", CreatedAt: longAgo, LastUsedAt: &used, ExpiresAt: &in10h},
			{ID: "t2", Description: "never used", WorkspaceID: "w", CreatedAt: longAgo},
		}},
	}
}

func TestOutputs(t *testing.T) {
	for name, args := range map[string]string{
		"ls":         "ls",
		"ls_quiet":   "ls -q",
		"ls_wide":    "ls -o wide",
		"ls_yaml":    "ls -o yaml",
		"ls_json":    "ls -o json",
		"ls_fields":  "ls -o template={{.name}}:{{.state}}:{{.labels.team}}:{{.resources.memory}}:{{.ttl_seconds}}:{{.nothing}}",
		"get":        "get broken",
		"get_json":   "get broken --json",
		"stats":      "stats demo",
		"images":     "images",
		"catalogue":  "catalogue",
		"tokens":     "token ls",
		"token_json": "token ls --json",
	} {
		t.Run(name, func(t *testing.T) {
			r := invoke(t, cannedSandboxes(), "", strings.Fields(args)...)
			if r.code != 0 || r.stderr != "" {
				t.Fatalf("modbox %s = %+v", args, r)
			}
			out := r.stdout
			for _, moment := range []time.Time{longAgo, in10h} {
				out = strings.ReplaceAll(out, moment.Format(time.RFC3339Nano), "TIME")
			}
			golden(t, name, out)
		})
	}
}

func TestEvents(t *testing.T) {
	// Following ends by itself when the sandbox has ended.
	r := invoke(t, cannedSandboxes(), "", "events", "-f", "broken", "--json")
	want := `{"seq":1,"sandbox_id":"0192f000-0000-7000-8000-000000000002","sandbox_name":"broken","time":"2026-01-02T03:04:05Z","type":"created","message":"asked for"}`
	if lines := strings.Split(r.stdout, "\n"); r.code != 0 || len(lines) != 3 || lines[0] != want {
		t.Errorf("events = %+v, want two lines, the first %s", r, want)
	}
}

func TestFollowedEventsHaveNoLimit(t *testing.T) {
	if r := invoke(t, cannedSandboxes(), "", "events", "-f", "--limit", "3"); r.code != base.ExitUsage || !strings.Contains(r.stderr, "--limit or --follow") {
		t.Errorf("events -f --limit 3 = %+v, want an error about both", r)
	}
}

func TestPortForwardToAnEndedSandbox(t *testing.T) {
	if r := invoke(t, cannedSandboxes(), "", "port-forward", "broken", ":80"); r.code != base.ExitFailure || !strings.Contains(r.stderr, "has ended") || r.stdout != "" {
		t.Errorf("port-forward = %+v, want an error before it listens", r)
	}
}

func TestErrorsNameTheCode(t *testing.T) {
	r := invoke(t, cannedSandboxes(), "", "get", "nobody")
	if want := "Error: there is no /v1/sandboxes/nobody [not_found]\n"; r.code != base.ExitFailure || r.stderr != want {
		t.Errorf("get nobody = %+v, want %q", r, want)
	}
	r = invoke(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		apierror.New(sandbox.InvalidField("resources.memory", "must be at most 8Gi"), "").Write(w)
	}), "", "create", "--memory", "9Gi")
	if want := "Error: resources.memory: must be at most 8Gi [invalid]\n"; r.code != base.ExitFailure || r.stderr != want {
		t.Errorf("create = %+v, want %q", r, want)
	}
}

func TestCreateSendsEverything(t *testing.T) {
	var got wire.CreateSandbox
	server := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(demo())
	})
	r := invoke(t, server, "", "create", "modbox/base", "--name", "n", "--memory", "1Gi", "--cpu", "500m", "--disk", "3Gi",
		"-e", "A=1=2", "-e", "FROM_MY_ENV", "-l", "k=v", "--ttl", "90s", "--replace")
	if want := demo().ID + "\n"; r.code != 0 || r.stdout != want {
		t.Fatalf("create = %+v, want %q", r, want)
	}
	want := fmt.Sprint(wire.CreateSandbox{
		Name: "n", Image: "modbox/base", Env: map[string]string{"A": "1=2", "FROM_MY_ENV": "mine"}, Labels: map[string]string{"k": "v"},
		TTLSeconds: 90, Replace: true, WaitSeconds: 1,
	})
	resources := *got.Resources
	got.Resources = nil
	if fmt.Sprint(got) != want || resources != (wire.Resources{Memory: "1Gi", CPU: "500m", Disk: "3Gi"}) {
		t.Errorf("request = %+v %+v, want %s", got, resources, want)
	}
}

func TestWaitFailsWhenItEnded(t *testing.T) {
	r := invoke(t, cannedSandboxes(), "", "wait", "broken")
	if r.code != base.ExitFailure || !strings.Contains(r.stderr, "limit of 512Mi") {
		t.Errorf("wait = %+v, want code 1 and the cause", r)
	}
}

func TestRemove(t *testing.T) {
	var mu sync.Mutex
	var removed []string // guarded by mu
	list := cannedSandboxes()
	server := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodDelete {
			list.ServeHTTP(w, r)
			return
		}
		ref := strings.TrimPrefix(r.URL.Path, "/v1/sandboxes/")
		if ref == "nobody" {
			apierror.New(sandbox.Errorf(sandbox.NotFound, "there is no sandbox %q", ref), "").Write(w)
			return
		}
		mu.Lock()
		removed = append(removed, ref)
		mu.Unlock()
		_ = json.NewEncoder(w).Encode(wire.Sandbox{Name: ref})
	})
	r := invoke(t, server, "", "rm", "a", "nobody", "b")
	if r.code != base.ExitFailure || r.stdout != "a\nb\n" || !strings.Contains(r.stderr, "nobody") {
		t.Errorf("rm a nobody b = %+v, want a and b removed and an error about nobody", r)
	}
	for answer, want := range map[string]int{"n\n": 0, "": 0, "y\n": 3} {
		removed = nil
		r := invoke(t, server, answer, "rm", "--all")
		if len(removed) != want || (r.code == 0) != (want > 0) || strings.Contains(r.stderr, "--yes") == (want > 0) {
			t.Errorf("rm --all answered %q removed %v with code %d, want %d removed", answer, removed, r.code, want)
		}
	}
	removed = nil
	if r := invoke(t, server, "", "rm", "--all", "-y", "--json"); r.code != 0 || len(removed) != 3 {
		t.Errorf("rm --all -y = %+v, removed %v", r, removed)
	}
}

func TestCompletionOffersNames(t *testing.T) {
	for args, want := range map[string][]string{
		"__complete get ":         {"demo\trunning modbox/code-exec:latest"},
		"__complete run modbox/":  {"modbox/base\tSmall Debian"},
		"__complete cp ":          {"demo:"},
		"__complete rm demo ":     {"broken\tfailed modbox/code-exec:latest"},
		"__complete token revoke": {"revoke\tMake tokens useless"},
	} {
		words := strings.Split(args, " ")
		r := invoke(t, cannedSandboxes(), "", words...)
		lines := strings.Split(r.stdout, "\n")
		for _, w := range want {
			if !slices.Contains(lines, w) {
				t.Errorf("%q offered %q, want %q among it", args, r.stdout, w)
			}
		}
	}
}

// TestWorkerOfASandbox: a sandbox is shown with its worker, which only administrators get.
func TestWorkerOfASandbox(t *testing.T) {
	if r := invoke(t, cannedSandboxes(), "", "get", "demo"); r.code != 0 || !strings.Contains(r.stdout, "\nWORKER       worker-1\n") {
		t.Errorf("get demo = %+v", r)
	}
	tenants := cannedSandboxes()
	tenants["/v1/sandboxes"] = wire.Page[wire.Sandbox]{Items: []wire.Sandbox{demo()}}
	if r := invoke(t, tenants, "", "ls", "-o", "wide"); r.code != 0 || strings.Contains(r.stdout, "WORKER") {
		t.Errorf("ls -o wide without workers = %+v", r)
	}
}
