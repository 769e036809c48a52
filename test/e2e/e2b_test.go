package e2e_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	filepb "github.com/modbox/modbox/internal/dialect/e2b/envdpb/filesystem"
	"github.com/modbox/modbox/internal/dialect/e2b/envdpb/filesystem/filesystemconnect"
	pb "github.com/modbox/modbox/internal/dialect/e2b/envdpb/process"
	"github.com/modbox/modbox/internal/dialect/e2b/envdpb/process/processconnect"
	"github.com/modbox/modbox/test/testserver"
)

// withHeaders adds headers to requests.
type withHeaders map[string]string

// RoundTrip implements http.RoundTripper.
func (h withHeaders) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, value := range h {
		r.Header.Set(name, value)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// as returns a call for a user of the sandbox.
func as[T any](user string, msg *T) *connect.Request[T] {
	req := connect.NewRequest(msg)
	r := http.Request{Header: req.Header()}
	r.SetBasicAuth(user, "")
	return req
}

// TestE2BBinaryMessages calls a sandbox by compressed binary messages of the Connect protocol, and polls a watcher.
// E2B's JavaScript clients, which test/e2b drives, do neither.
func TestE2BBinaryMessages(t *testing.T) {
	s := testserver.StartSmall(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "POST", s.URL+"/v2/sandboxes", strings.NewReader(`{"templateID":"base","timeout":600}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-API-Key", s.Token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusCreated {
		t.Fatalf("create = %d %s, %v", resp.StatusCode, body, err)
	}
	var made struct{ SandboxID, EnvdAccessToken string }
	if err := json.Unmarshal(body, &made); err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Transport: withHeaders{"E2b-Sandbox-Id": made.SandboxID, "E2b-Sandbox-Port": "49983", "X-Access-Token": made.EnvdAccessToken}}
	processes := processconnect.NewProcessClient(c, s.URL, connect.WithSendGzip())
	files := filesystemconnect.NewFilesystemClient(c, s.URL, connect.WithSendGzip())

	if _, err := files.MakeDir(ctx, as("root", &filepb.MakeDirRequest{Path: "~/polled"})); err != nil {
		t.Fatal(err)
	}
	watcher, err := files.CreateWatcher(ctx, as("root", &filepb.CreateWatcherRequest{Path: "/root/polled", Recursive: true}))
	if err != nil {
		t.Fatal(err)
	}
	id := watcher.Msg.GetWatcherId()
	stream, err := processes.Start(ctx, as("root", &pb.StartRequest{Process: &pb.ProcessConfig{
		Cmd: "/bin/sh", Args: []string{"-c", `cat; mkdir polled/sub; touch polled/sub/file`},
	}}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if !stream.Receive() || stream.Msg().GetEvent().GetStart() == nil {
		t.Fatalf("first event = %v, %v", stream.Msg(), stream.Err())
	}
	process := &pb.ProcessSelector{Selector: &pb.ProcessSelector_Pid{Pid: stream.Msg().GetEvent().GetStart().GetPid()}}
	bytes := make([]byte, 100_000)
	for i := range bytes {
		bytes[i] = byte(i)
	}
	_, err = processes.SendInput(ctx, connect.NewRequest(&pb.SendInputRequest{Process: process, Input: &pb.ProcessInput{Input: &pb.ProcessInput_Stdin{Stdin: bytes}}}))
	if err == nil {
		_, err = processes.CloseStdin(ctx, connect.NewRequest(&pb.CloseStdinRequest{Process: process}))
	}
	if err != nil {
		t.Fatal(err)
	}
	var out string
	var end *pb.ProcessEvent_EndEvent
	for stream.Receive() {
		out += string(stream.Msg().GetEvent().GetData().GetStdout())
		end = stream.Msg().GetEvent().GetEnd()
	}
	if stream.Err() != nil || end.GetExitCode() != 0 || !end.GetExited() || out != string(bytes) {
		t.Errorf("end = %v, %v, with %d bytes", end, stream.Err(), len(out))
	}
	seen := map[string]bool{}
	for !seen["sub"] { // until the time limit of ctx
		events, err := files.GetWatcherEvents(ctx, connect.NewRequest(&filepb.GetWatcherEventsRequest{WatcherId: id}))
		if err != nil {
			t.Fatalf("events: %v; seen %v", err, seen)
		}
		for _, e := range events.Msg.GetEvents() {
			seen[e.GetName()] = true
		}
	}
	if _, err := files.RemoveWatcher(ctx, connect.NewRequest(&filepb.RemoveWatcherRequest{WatcherId: id})); err != nil {
		t.Error(err)
	}
	if _, err := files.Stat(ctx, as("nobody-here", &filepb.StatRequest{Path: "/"})); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("unknown user = %v", err)
	}
	stat, err := files.Stat(ctx, as("root", &filepb.StatRequest{Path: "polled/sub/file"}))
	if err != nil || stat.Msg.GetEntry().GetOwner() != "root" || stat.Msg.GetEntry().GetPath() != "/root/polled/sub/file" {
		t.Errorf("file = %v, %v", stat, err)
	}
}
