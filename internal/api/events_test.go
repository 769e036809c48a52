package api_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/api"
	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/sandbox"
)

// eventStream is an open stream of events.
type eventStream struct {
	t     *testing.T
	resp  *http.Response
	lines *bufio.Reader
}

func followEvents(t *testing.T, s *apitest.Server, query, last string) *eventStream {
	t.Helper()
	r := s.Request("GET", "/v1/events/stream"+query, nil)
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	resp, err := s.HTTP.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("the stream is answered %d, %s", resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	return &eventStream{t, resp, bufio.NewReader(resp.Body)}
}

// message returns the next message as its fields.
func (s *eventStream) message() map[string]string {
	s.t.Helper()
	m := map[string]string{}
	for {
		line, err := s.lines.ReadString('\n')
		if err != nil {
			s.t.Fatalf("read the stream: %v", err)
		}
		if line == "\n" {
			return m
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		m[name] = value
	}
}

type shownEvent struct {
	Seq         int64
	SandboxName string `json:"sandbox_name"`
	Type        string
}

// event returns the next event; messages without data are passed over.
func (s *eventStream) event() (e shownEvent) {
	s.t.Helper()
	for {
		m := s.message()
		if m["data"] == "" {
			continue
		}
		if err := json.Unmarshal([]byte(m["data"]), &e); err != nil || m["id"] != fmt.Sprint(e.Seq) || m["event"] != "" {
			s.t.Fatalf("message %v: %v", m, err)
		}
		return e
	}
}

func TestEventStream(t *testing.T) {
	s := apitest.NewWith(t, func(c *api.Config, _ *api.Deps) { c.Ping = 10 * time.Millisecond })
	stream := followEvents(t, s, "", "")
	first := stream.message()
	if first["retry"] == "" {
		t.Errorf("the first message is %v, want retry", first)
	}
	s.Want(201, "POST", "/v1/sandboxes", map[string]any{"name": "a", "wait_seconds": 180})
	created := stream.event()
	if created.Type != "created" || created.SandboxName != "a" {
		t.Errorf("the first event is %+v, want created of a", created)
	}
	if running := stream.event(); running.Type != "running" {
		t.Errorf("the second event is %+v, want running", running)
	}
	for m := stream.message(); ; m = stream.message() {
		if _, ping := m[""]; !ping && m["data"] == "" {
			t.Fatalf("a message in a silence is %v, want a ping", m)
		}
		if m["data"] == "" && m["id"] != "" {
			break
		}
	}
}

func TestEventStreamResumes(t *testing.T) {
	s := apitest.New(t)
	s.Want(201, "POST", "/v1/sandboxes", map[string]any{"name": "a", "wait_seconds": 180})
	s.Want(201, "POST", "/v1/sandboxes", map[string]any{"name": "b", "wait_seconds": 180})
	s.Want(200, "DELETE", "/v1/sandboxes/a", nil)
	all := followEvents(t, s, "?after_seq=0", "")
	var seen []shownEvent
	for len(seen) < 4 {
		seen = append(seen, all.event())
	}
	again := followEvents(t, s, "?after_seq=0", fmt.Sprint(seen[1].Seq))
	for _, want := range seen[2:] {
		if got := again.event(); got != want {
			t.Errorf("a stream that resumes has %+v, want %+v", got, want)
		}
	}
	if e := followEvents(t, s, "?sandbox=b&type=running&since=2020-01-01T00:00:00Z", "").event(); e.SandboxName != "b" || e.Type != "running" {
		t.Errorf("the first event of the filter is %+v", e)
	}
	for path, field := range map[string]string{
		"?type=nonsense": "type", "?since=yesterday": "since", "?after_seq=x": "after_seq", "?after_seq=99999": "after_seq", "?limit=3": "limit",
	} {
		if a := s.Want(422, "GET", "/v1/events/stream"+path, nil); !strings.Contains(string(a.Body), field) {
			t.Errorf("%s is answered %s, want the field %s", path, a.Body, field)
		}
	}
	s.Want(404, "GET", "/v1/events/stream?sandbox=nobody", nil)
}

// TestEventStreamLosesItsRights checks that a stream ends with the token that opened it.
func TestEventStreamLosesItsRights(t *testing.T) {
	s := apitest.New(t)
	var token struct{ ID, Token string }
	s.Want(201, "POST", "/v1/tokens", map[string]any{"scopes": []string{"sandboxes:read"}}).Into(t, &token)
	owner := s.Token
	s.Token = token.Token
	stream := followEvents(t, s, "", "")
	stream.message()
	s.Token = owner
	s.Want(204, "DELETE", "/v1/tokens/"+token.ID, nil)
	if m := stream.message(); m["event"] != "problem" || !strings.Contains(m["data"], `"unauthenticated"`) {
		t.Errorf("after the token was revoked comes %v, want a problem", m)
	}
	if b, err := stream.lines.ReadByte(); err == nil {
		t.Errorf("the stream goes on with %q", b)
	}
}

// TestEventStreamEndsWithTheServer checks that the end of the server ends a stream without a problem.
func TestEventStreamEndsWithTheServer(t *testing.T) {
	apitest.NotElsewhere(t, "it ends the server, and not the other")
	s := apitest.New(t)
	stream := followEvents(t, s, "", "")
	stream.message()
	s.Events.Close()
	if line, err := stream.lines.ReadString('\n'); line != "" || err == nil {
		t.Errorf("at the end of the server comes %q, %v; want the end", line, err)
	}
	s.Want(503, "GET", "/v1/events/stream", nil)
}

func TestListWorkspaceEvents(t *testing.T) {
	s := apitest.New(t)
	s.Want(201, "POST", "/v1/sandboxes", map[string]any{"name": "a", "wait_seconds": 180})
	s.Want(201, "POST", "/v1/sandboxes", map[string]any{"name": "b", "wait_seconds": 180})
	list := func(query string) (names []string) {
		t.Helper()
		var got struct{ Items []shownEvent }
		s.Want(200, "GET", "/v1/events"+query, nil).Into(t, &got)
		for _, e := range got.Items {
			names = append(names, e.SandboxName+" "+e.Type)
		}
		return names
	}
	for query, want := range map[string][]string{
		"":                            {"a created", "a running", "b created", "b running"},
		"?sandbox=b":                  {"b created", "b running"},
		"?type=running&order=desc":    {"b running", "a running"},
		"?type=running&type=failed":   {"a running", "b running"},
		"?until=2020-01-01T00:00:00Z": nil,
		"?since=2020-01-01T00:00:00Z": {"a created", "a running", "b created", "b running"},
		"?limit=1":                    {"a created"},
		"?after_seq=2&sandbox=b":      {"b created", "b running"},
	} {
		if got := list(query); !slices.Equal(got, want) {
			t.Errorf("GET /v1/events%s = %q, want %q", query, got, want)
		}
	}
	for _, query := range []string{"?type=nonsense", "?order=up", "?since=x", "?cursor=x", "?colour=red"} {
		s.Want(422, "GET", "/v1/events"+query, nil)
	}
	s.Want(404, "GET", "/v1/events?sandbox=nobody", nil)
	// Another workspace has no events, and does not see these.
	u, _, err := s.Accounts.CreateUser(t.Context(), auth.Identity{}, auth.NewUser{Name: "stranger"})
	if err != nil {
		t.Fatal(err)
	}
	token, _, err := s.Auth.CreateToken(t.Context(), auth.Identity{User: u.ID, Workspace: u.Home, Role: "owner"}, auth.TokenRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var b struct{ ID sandbox.ID }
	s.Want(200, "GET", "/v1/sandboxes/b", nil).Into(t, &b)
	s.Token = token
	if got := list(""); len(got) != 0 {
		t.Errorf("another workspace sees %q", got)
	}
	s.Want(404, "GET", "/v1/events?sandbox="+string(b.ID), nil)
}

// used is a measurement in a message of a stream with stats.
type used struct {
	Sandbox   string `json:"sandbox_id"`
	Time      time.Time
	Disk      *int64 `json:"disk_bytes"`
	Memory    int64  `json:"memory_bytes"`
	CPU       int64  `json:"cpu_nanoseconds"`
	Processes *int64
}

// stats returns the next measurements; other messages are passed over.
func (s *eventStream) stats() (list []used) {
	s.t.Helper()
	for {
		m := s.message()
		if m["event"] != "stats" {
			continue
		}
		if err := json.Unmarshal([]byte(m["data"]), &list); err != nil || m["id"] != "" || len(list) == 0 {
			s.t.Fatalf("message %v: %v", m, err)
		}
		return list
	}
}

func TestEventStreamWithStats(t *testing.T) {
	apitest.NotElsewhere(t, "another server knows what is recorded, which takes half a minute")
	s := apitest.New(t)
	ids := map[string]string{}
	for _, name := range []string{"a", "b"} {
		var sb struct{ ID string }
		s.Want(201, "POST", "/v1/sandboxes", map[string]any{"name": name, "wait_seconds": 180}).Into(t, &sb)
		ids[name] = sb.ID
	}
	one := followEvents(t, s, "?sandbox=a&stats=1", "")
	first, second := one.stats(), one.stats()
	if len(first) != 1 || first[0].Sandbox != ids["a"] || first[0].Disk == nil || first[0].Processes == nil || !second[0].Time.After(first[0].Time) {
		t.Errorf("the stream of one sandbox has %+v, then %+v", first, second)
	}
	all := followEvents(t, s, "?stats=60", "").stats()
	got := map[string]bool{}
	for _, u := range all {
		if got[u.Sandbox] = true; u.Disk != nil || u.Processes != nil {
			t.Errorf("the stream of all sandboxes has %+v", u)
		}
	}
	if len(all) != 2 || !got[ids["a"]] || !got[ids["b"]] {
		t.Errorf("the stream of all sandboxes has %+v, want %v", all, ids)
	}
	// Events come between measurements, and none are measured without the parameter.
	s.Want(200, "POST", "/v1/sandboxes/a/pause", nil)
	for one.event().Type != "paused" { //nolint:revive // each call reads on
	}
	plain := followEvents(t, s, "?sandbox=b", "")
	s.Want(200, "POST", "/v1/sandboxes/b/pause", nil)
	for m := plain.message(); !strings.Contains(m["data"], `"paused"`); m = plain.message() {
		if m["event"] != "" {
			t.Fatalf("a stream without stats has %v", m)
		}
	}
	for _, bad := range []string{"0", "61", "x", "1.5", "-1"} {
		if a := s.Want(422, "GET", "/v1/events/stream?stats="+bad, nil); !strings.Contains(string(a.Body), "stats") {
			t.Errorf("stats=%s: %s", bad, a.Body)
		}
	}
}

// TestStreamsShareMeasurements has two streams of one sandbox, which do not measure it twice.
func TestStreamsShareMeasurements(t *testing.T) {
	s := apitest.New(t)
	s.Want(201, "POST", "/v1/sandboxes", map[string]any{"name": "a", "wait_seconds": 180})
	one, other := followEvents(t, s, "?sandbox=a&stats=1", ""), followEvents(t, s, "?sandbox=a&stats=1", "")
	seen := map[time.Time]bool{}
	for range 30 {
		seen[one.stats()[0].Time] = true
		if seen[other.stats()[0].Time] {
			return
		}
	}
	t.Error("in 30 messages, two streams never had the same measurement")
}

// TestEventStreamHasNoStatsOfOthers checks that a stream has measurements of the caller's workspace only.
func TestEventStreamHasNoStatsOfOthers(t *testing.T) {
	s := apitest.New(t)
	s.Want(201, "POST", "/v1/sandboxes", map[string]any{"name": "mine", "wait_seconds": 180})
	var ws struct{ ID string }
	s.Want(201, "POST", "/v1/workspaces", map[string]any{"name": "other", "slug": "other"}).Into(t, &ws)
	r := s.Request("GET", "/v1/events/stream?stats=1", nil)
	r.Header.Set(auth.WorkspaceHeader, ws.ID)
	resp, err := s.HTTP.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	theirs := &eventStream{t, resp, bufio.NewReader(resp.Body)}
	create := s.Request("POST", "/v1/sandboxes", map[string]any{"name": "theirs", "wait_seconds": 180})
	create.Header.Set(auth.WorkspaceHeader, ws.ID)
	if a := s.Send(create); a.Status != 201 {
		t.Fatalf("create = %d %s", a.Status, a.Body)
	}
	var sb struct{ ID string }
	get := s.Request("GET", "/v1/sandboxes/theirs", nil)
	get.Header.Set(auth.WorkspaceHeader, ws.ID)
	s.Send(get).Into(t, &sb)
	if list := theirs.stats(); len(list) != 1 || list[0].Sandbox != sb.ID {
		t.Errorf("the stream of the other workspace has %+v, want %s", list, sb.ID)
	}
}
