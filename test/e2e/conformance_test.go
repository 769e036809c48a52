package e2e_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// step is one call of sdk/conformance/scenario.json; the README beside it says
// what its members mean.
type step struct {
	Name, Call string
	Args       json.RawMessage
	Expect     json.RawMessage
	Error      json.RawMessage
	Save       map[string]string
	As, Become string
}

// otherCalls are the calls of the Modbox platform, which the Go client for /v1 does not have, and
// of clients that renew their session by themselves.
var otherCalls = []string{
	"account.refresh",
	"provision_sandbox", "wait_for_sandbox", "get_sandbox", "list_sandboxes", "destroy_sandbox", "list_sandbox_images",
}

func TestConformance(t *testing.T) {
	s := testserver.Start(t, "--archive-url", "file://"+filepath.Join(t.TempDir(), "archive"))
	data, err := os.ReadFile(filepath.Join("..", "..", "sdk", "conformance", "scenario.json"))
	if err != nil {
		t.Fatal(err)
	}
	var scenario struct{ Steps []step }
	if err := json.Unmarshal(data, &scenario); err != nil {
		t.Fatal(err)
	}
	saved := map[string]string{"run": "go-" + strings.ToLower(rand.Text())}
	did := map[string]bool{}
	clients := map[string]*client.Client{"": s.Client}
	for _, st := range scenario.Steps {
		if slices.Contains(otherCalls, st.Call) {
			continue
		}
		did[st.Call] = true
		t.Run(strings.ReplaceAll(st.Name, " ", "_"), func(t *testing.T) { st.run(t, clients, saved) })
	}
	for call := range goCalls {
		if !did[call] {
			t.Errorf("no step calls %s", call)
		}
	}
}

// run performs the step in the name of whom it says, one of clients.
func (st step) run(t *testing.T, clients map[string]*client.Client, saved map[string]string) {
	call := goCalls[st.Call]
	if call == nil {
		t.Fatalf("there is no call %s", st.Call)
	}
	var a arguments
	decode(t, fill(st.Args, saved), &a)
	value, err := call(t.Context(), clients[st.As], a)
	if st.Error != nil {
		var e *client.Error
		if !errors.As(err, &e) {
			t.Fatalf("got %+v, %v; want an error", value, err)
		}
		got := map[string]any{"code": string(e.Code), "status": float64(e.Status), "message": e.Message}
		if len(e.Fields) > 0 {
			got["field"] = e.Fields[0].Location
		}
		expect(t, got, fill(st.Error, saved))
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if st.Become != "" {
		clients[st.Become] = value.(*client.Client)
		return
	}
	got := generic(t, value)
	if st.Expect != nil {
		expect(t, got, fill(st.Expect, saved))
	}
	for name, member := range st.Save {
		saved[name] = inside(got, strings.Split(member, ".")).(string)
	}
}

// inside returns what is at a path of names and indices.
func inside(value any, path []string) any {
	for _, key := range path {
		if list, ok := value.([]any); ok {
			i, err := strconv.Atoi(key)
			if err != nil || i >= len(list) {
				return nil
			}
			value = list[i]
			continue
		}
		object, _ := value.(map[string]any)
		value = object[key]
	}
	return value
}

// arguments are the arguments of all calls, by their names on the wire.
type arguments struct {
	Ref, Name, Image, Shell, Cwd, User, Output, Path, Mode, From, To string

	State, ID, Kind, Text, Description, Message, Checkpoint, Memory, Snapshot, Runtime, Workspace, Role, Tag, Sort, Order, Stderr string

	UserName                           string `json:"username"`
	CurrentPassword                    string `json:"current_password"`
	ImageID                            string `json:"image_id"`
	RegistryID                         string `json:"registry_id"`
	Language, Context                  string
	ContextID                          string `json:"context_id"`
	Who, Code, Password, Email, Server string
	Disabled                           *bool
	EnabledOnly                        bool `json:"enabled_only"`
	All, Everywhere                    bool
	DryRun                             bool  `json:"dry_run"`
	MemoryMB                           int64 `json:"memory_mb"`

	Command                   commandArgument
	Stdin                     any // a text, or whether there is a stream
	Changes                   map[string]*string
	Files                     map[string]string
	Names                     []string
	AptPackages               []string `json:"apt_packages"`
	NpmPackages               []string `json:"npm_packages"`
	PipPackages               []string `json:"pip_packages"`
	Metadata                  map[string]string
	Timeouts                  client.Timeouts
	Env, Labels               map[string]string
	States                    []client.State
	Resources                 client.Resources
	Network                   client.Network
	Enabled                   *bool
	Ports                     *[]uint16
	AllowOut                  *[]string `json:"allow_out"`
	DenyOut                   *[]string `json:"deny_out"`
	RequestHost               *string   `json:"request_host"`
	HTTPSPorts                *[]uint16 `json:"https_ports"`
	Port                      uint16
	Access                    client.PortAccess
	URLAccess                 client.URLAccess `json:"url_access"`
	Content                   struct{ Base64 []byte }
	TTLSeconds                int64  `json:"ttl_seconds"`
	CheckpointIntervalSeconds int64  `json:"checkpoint_interval_seconds"`
	TimeoutSeconds            int64  `json:"timeout_seconds"`
	MaxOutputBytes            int64  `json:"max_output_bytes"`
	WaitSeconds               int64  `json:"wait_seconds"`
	ExpiresSeconds            int64  `json:"expires_in_seconds"`
	SnapshotID                string `json:"snapshot_id"`
	ContentHash               string `json:"content_hash"`

	Parents, Overwrite, Recursive bool
	Follow, Timestamps, Force     bool
	End                           *bool
	Limit, Count                  int
	Cursor                        string
	Offset                        int64
}

func (a arguments) command() client.Command {
	stdin, _ := a.Stdin.(string)
	return client.Command{
		Argv: a.Command.Argv, Shell: a.Shell, Cwd: a.Cwd, Env: a.Env, User: a.User, Stdin: []byte(stdin),
		Timeout: time.Duration(a.TimeoutSeconds) * time.Second, MaxOutput: a.MaxOutputBytes,
	}
}

type bytesValue struct {
	Base64 []byte `json:"base64"`
}

// goCalls are the scenario's calls in Go.
var goCalls = func() map[string]call {
	calls := maps.Clone(coreCalls)
	maps.Copy(calls, statefulCalls)
	maps.Copy(calls, accountCalls)
	maps.Copy(calls, portCalls)
	maps.Copy(calls, codeCalls)
	return calls
}()

// call performs one call of the scenario.
type call func(context.Context, *client.Client, arguments) (any, error)

// coreCalls are the calls about commands and files.
var coreCalls = map[string]call{
	"whoami":  func(ctx context.Context, c *client.Client, _ arguments) (any, error) { return c.WhoAmI(ctx) },
	"version": func(ctx context.Context, c *client.Client, _ arguments) (any, error) { return c.Version(ctx) },
	"images.delete": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return nil, c.Images.Delete(ctx, a.ID)
	},
	"images.prune": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Images.Prune(ctx, client.ImagePruneOptions{All: a.All, DryRun: a.DryRun})
	},
	"images.list": func(ctx context.Context, c *client.Client, _ arguments) (any, error) {
		return c.Images.List().Collect(ctx)
	},
	"sandboxes.create": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		o := client.CreateOptions{
			Name: a.Name, Image: a.Image, ImageID: a.ImageID, Env: a.Env, Labels: a.Labels, Resources: a.Resources, Network: a.Network, TTL: time.Duration(a.TTLSeconds) * time.Second,
			Snapshot: a.Snapshot, Timeouts: a.Timeouts, Description: a.Description, Metadata: a.Metadata, URLAccess: a.URLAccess,
			AptPackages: a.AptPackages, NpmPackages: a.NpmPackages, PipPackages: a.PipPackages, OneShot: a.Mode == "oneshot", WaitUpTo: time.Duration(a.WaitSeconds) * time.Second,
		}
		if a.Command.Shell != "" {
			o.Command = &client.Command{Shell: a.Command.Shell}
			o.Execution.Kind = a.Command.Kind
		}
		return c.Sandboxes.Create(ctx, o)
	},
	"sandboxes.get": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Sandboxes.Get(ctx, a.Ref)
	},
	"sandboxes.delete": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Sandboxes.Delete(ctx, a.Ref)
	},
	"sandboxes.list": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Sandboxes.List(client.ListOptions{States: a.States, Labels: a.Labels, SnapshotID: a.SnapshotID}).Collect(ctx)
	},
	"sandboxes.wait": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		want := client.State(a.State)
		if want == "" {
			want = client.Running
		}
		sb, err := c.Sandboxes.Wait(ctx, a.Ref, want)
		if err == nil && sb.State != want { // in Go an end is an answer
			err = &client.Error{Code: client.Ended}
		}
		return sb, err
	},
	"sandboxes.exec": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		r, err := c.Sandboxes.Exec(ctx, a.Ref, a.command())
		if err != nil {
			return nil, err
		}
		output := func(b []byte) any {
			if a.Output == "bytes" {
				return bytesValue{b}
			}
			return string(b)
		}
		return map[string]any{
			"exit_code": r.ExitCode, "signal": r.Signal, "timed_out": r.TimedOut, "duration_ms": r.DurationMS,
			"stdout": output(r.Stdout), "stderr": output(r.Stderr),
			"stdout_truncated": r.StdoutTruncated, "stderr_truncated": r.StderrTruncated,
		}, nil
	},
	"sandboxes.exec_stream": execStream,
	"sandboxes.stats": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Sandboxes.Stats(ctx, a.Ref)
	},
	"sandboxes.usage": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Sandboxes.Usage(ctx, a.Ref)
	},
	"sandboxes.set_network": setNetwork,
	"sandboxes.update": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		ttl, interval := time.Duration(a.TTLSeconds)*time.Second, time.Duration(a.CheckpointIntervalSeconds)*time.Second
		if ttl != 0 {
			return c.Sandboxes.Update(ctx, a.Ref, client.UpdateOptions{TTL: &ttl})
		}
		return c.Sandboxes.Update(ctx, a.Ref, client.UpdateOptions{CheckpointInterval: &interval})
	},
	"sandboxes.events": events,
	"sandboxes.files.read": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		r, err := c.Sandboxes.Files.Read(ctx, a.Ref, a.Path)
		if err != nil {
			return nil, err
		}
		defer r.Close()
		b, err := io.ReadAll(r)
		return bytesValue{b}, err
	},
	"sandboxes.files.write": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		mode, err := strconv.ParseUint("0"+a.Mode, 8, 32)
		if err != nil {
			return nil, err
		}
		return c.Sandboxes.Files.Write(ctx, a.Ref, a.Path, bytes.NewReader(a.Content.Base64), client.WriteOptions{Mode: uint32(mode), Parents: a.Parents})
	},
	"sandboxes.files.list": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Sandboxes.Files.List(a.Ref, a.Path).Collect(ctx)
	},
	"sandboxes.files.page": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Sandboxes.Files.List(a.Ref, a.Path).Page(ctx, client.PageOptions{Limit: a.Limit, Cursor: a.Cursor})
	},
	"sandboxes.files.stat": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Sandboxes.Files.Stat(ctx, a.Ref, a.Path)
	},
	"sandboxes.files.mkdir": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Sandboxes.Files.Mkdir(ctx, a.Ref, a.Path, a.Parents)
	},
	"sandboxes.files.move": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Sandboxes.Files.Move(ctx, a.Ref, a.From, a.To, a.Overwrite)
	},
	"sandboxes.files.delete": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return nil, c.Sandboxes.Files.Delete(ctx, a.Ref, a.Path, a.Recursive)
	},
}

// execStream puts the output of a stream together. Go's stream has no events:
// that it began is the call's success, its end what Copy returns.
func execStream(ctx context.Context, c *client.Client, a arguments) (any, error) {
	s, err := c.Sandboxes.ExecStream(ctx, a.Ref, a.command())
	if err != nil {
		return nil, err
	}
	defer s.Close()
	types := []string{"started"}
	var stdout, stderr bytes.Buffer
	exit, err := s.Copy(&noted{&stdout, "stdout", &types}, &noted{&stderr, "stderr", &types})
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"types": append(types, "exit"), "stdout": stdout.String(), "stderr": stderr.String(), "exit_code": exit.ExitCode,
	}, nil
}

// noted notes its name when it is first written to.
type noted struct {
	io.Writer
	name  string
	types *[]string
}

func (n *noted) Write(p []byte) (int, error) {
	if !slices.Contains(*n.types, n.name) {
		*n.types = append(*n.types, n.name)
	}
	return n.Writer.Write(p)
}

var variable = regexp.MustCompile(`\$\{(\w+)\}`)

// fill puts what earlier steps saved in place of ${name}.
func fill(raw json.RawMessage, saved map[string]string) json.RawMessage {
	if raw == nil {
		return json.RawMessage("{}")
	}
	return variable.ReplaceAllFunc(raw, func(m []byte) []byte { return []byte(saved[string(m[2:len(m)-1])]) })
}

func decode(t *testing.T, raw json.RawMessage, v any) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
}

// generic is a value as JSON has it.
func generic(t *testing.T, value any) (v any) {
	t.Helper()
	b, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	decode(t, b, &v)
	return v
}

func expect(t *testing.T, got any, raw json.RawMessage) {
	t.Helper()
	var want any
	decode(t, raw, &want)
	if err := match(got, want, "answer"); err != nil {
		t.Error(err)
	}
}

// match returns an error that says where got is not what want allows.
func match(got, want any, where string) error {
	wrong := fmt.Errorf("%s: got %v, want %v", where, got, want)
	object, ok := want.(map[string]any)
	if !ok {
		return matchExact(got, want, where)
	}
	if len(object) == 1 {
		for matcher, arg := range object {
			if strings.HasPrefix(matcher, "$") {
				if ok, err := matchBy(got, matcher, arg); err != nil || !ok {
					return errors.Join(wrong, err)
				}
				return nil
			}
		}
	}
	have, ok := got.(map[string]any)
	if !ok {
		return wrong
	}
	for key, w := range object {
		if err := match(have[key], w, where+"."+key); err != nil {
			return err
		}
	}
	return nil
}

// matchExact compares what is not an object; members of a list may be matchers.
func matchExact(got, want any, where string) error {
	wrong := fmt.Errorf("%s: got %v, want %v", where, got, want)
	list, ok := want.([]any)
	if !ok {
		if !reflect.DeepEqual(got, want) {
			return wrong
		}
		return nil
	}
	have, ok := got.([]any)
	if !ok || len(have) != len(list) {
		return wrong
	}
	for i := range list {
		if err := match(have[i], list[i], fmt.Sprintf("%s[%d]", where, i)); err != nil {
			return err
		}
	}
	return nil
}

func matchBy(got any, matcher string, arg any) (bool, error) {
	switch matcher {
	case "$one_of":
		return slices.Contains(arg.([]any), got), nil
	case "$match":
		text, ok := got.(string)
		return ok && regexp.MustCompile(arg.(string)).MatchString(text), nil
	case "$length":
		switch got := got.(type) {
		case string:
			return float64(utf8.RuneCountInString(got)) == arg, nil
		case []any:
			return float64(len(got)) == arg, nil
		}
		return false, nil
	case "$at_least":
		n, ok := got.(float64)
		return ok && n >= arg.(float64), nil
	case "$includes":
		list, _ := got.([]any)
		return slices.ContainsFunc(list, func(item any) bool { return match(item, arg, "") == nil }), nil
	}
	return false, fmt.Errorf("there is no matcher %s", matcher)
}

func setNetwork(ctx context.Context, c *client.Client, a arguments) (any, error) {
	return c.Sandboxes.SetNetwork(ctx, a.Ref, client.NetworkChange{Enabled: a.Enabled, Ports: a.Ports, AllowOut: a.AllowOut, DenyOut: a.DenyOut, RequestHost: a.RequestHost, HTTPSPorts: a.HTTPSPorts})
}
