package gateway_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/modbox/modbox/internal/api/apitest"
	filepb "github.com/modbox/modbox/internal/dialect/e2b/envdpb/filesystem"
	"github.com/modbox/modbox/internal/dialect/e2b/envdpb/filesystem/filesystemconnect"
	pb "github.com/modbox/modbox/internal/dialect/e2b/envdpb/process"
	"github.com/modbox/modbox/internal/dialect/e2b/envdpb/process/processconnect"
)

// visitor is a client of a sandbox of a server over the fake driver.
type visitor struct {
	*apitest.Server
	client    *http.Client // with the headers of the sandbox
	processes processconnect.ProcessClient
	files     filesystemconnect.FilesystemClient
}

// headers adds the headers of E2B's clients to requests.
type headers struct {
	next http.RoundTripper
	set  map[string]string
}

// RoundTrip implements http.RoundTripper.
func (h headers) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, value := range h.set {
		r.Header.Set(name, value)
	}
	return h.next.RoundTrip(r)
}

// start makes a sandbox, as E2B's clients do.
func start(t *testing.T) *visitor {
	t.Helper()
	s := apitest.New(t)
	var made struct {
		SandboxID   string `json:"sandboxID"`
		AccessToken string `json:"envdAccessToken"`
	}
	s.Want(http.StatusCreated, "POST", "/e2b/v2/sandboxes", `{"templateID":"base","timeout":600}`).Into(t, &made)
	c := &http.Client{Transport: headers{s.HTTP.Transport, map[string]string{
		"E2b-Sandbox-Id": made.SandboxID, "E2b-Sandbox-Port": "49983", "X-Access-Token": made.AccessToken,
	}}}
	return &visitor{s, c, processconnect.NewProcessClient(c, s.URL), filesystemconnect.NewFilesystemClient(c, s.URL)}
}

// run starts a shell script and returns its stream and pid.
func (v *visitor) run(script string) (*connect.ServerStreamForClient[pb.StartResponse], uint32) {
	v.T.Helper()
	stream, err := v.processes.Start(v.T.Context(), connect.NewRequest(&pb.StartRequest{
		Process: &pb.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", script}},
	}))
	if err != nil {
		v.T.Fatal(err)
	}
	if !stream.Receive() || stream.Msg().GetEvent().GetStart() == nil {
		v.T.Fatalf("first event of %q = %v, %v, want its start", script, stream.Msg(), stream.Err())
	}
	return stream, stream.Msg().GetEvent().GetStart().GetPid()
}

func byPID(pid uint32) *pb.ProcessSelector {
	return &pb.ProcessSelector{Selector: &pb.ProcessSelector_Pid{Pid: pid}}
}

// kill sends SIGKILL.
func (v *visitor) kill(pid uint32) error {
	_, err := v.processes.SendSignal(v.T.Context(), connect.NewRequest(&pb.SendSignalRequest{Process: byPID(pid), Signal: pb.Signal_SIGNAL_SIGKILL}))
	return err
}

// send sends input.
func (v *visitor) send(pid uint32, text string) error {
	_, err := v.processes.SendInput(v.T.Context(), connect.NewRequest(&pb.SendInputRequest{
		Process: byPID(pid), Input: &pb.ProcessInput{Input: &pb.ProcessInput_Stdin{Stdin: []byte(text)}},
	}))
	return err
}

// rest reads a stream to its end: the output, and how the process ended.
func rest(t *testing.T, stream *connect.ServerStreamForClient[pb.StartResponse]) (string, *pb.ProcessEvent_EndEvent) {
	t.Helper()
	defer stream.Close()
	var out strings.Builder
	var end *pb.ProcessEvent_EndEvent
	for stream.Receive() {
		e := stream.Msg().GetEvent()
		out.Write(e.GetData().GetStdout())
		if e.GetEnd() != nil {
			end = e.GetEnd()
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatalf("stream = %v", err)
	}
	return out.String(), end
}

// TestKill kills processes, each a second time as soon as the first call has answered: the first call does
// not fail when the connection to the process ends before its answer, and the second finds no process.
func TestKill(t *testing.T) {
	v := start(t)
	for range 20 {
		stream, pid := v.run("sleep 1000")
		began := time.Now()
		if err := v.kill(pid); err != nil {
			t.Fatalf("first kill = %v", err)
		}
		// The call waits so long for the end; on a machine so slow the end may come after it.
		if err := v.kill(pid); connect.CodeOf(err) != connect.CodeNotFound && time.Since(began) < 2*time.Second {
			t.Fatalf("second kill = %v, want not_found", err)
		}
		if _, end := rest(t, stream); end.GetStatus() != "signal: killed" || end.GetExited() || end.GetExitCode() != -1 {
			t.Fatalf("end = %v", end)
		}
		if err := v.kill(pid); connect.CodeOf(err) != connect.CodeNotFound {
			t.Fatalf("kill after the end = %v, want not_found", err)
		}
		if err := v.send(pid, "x"); connect.CodeOf(err) != connect.CodeNotFound {
			t.Fatalf("input of an ended process = %v, want not_found", err)
		}
	}
}

// TestReaders has a process whose output several clients read.
func TestReaders(t *testing.T) {
	v := start(t)
	first, pid := v.run("read x; echo got $x")
	second, err := v.processes.Connect(t.Context(), connect.NewRequest(&pb.ConnectRequest{Process: byPID(pid)}))
	if err != nil || !second.Receive() || second.Msg().GetEvent().GetStart().GetPid() != pid {
		t.Fatalf("connect = %v, %v", second.Msg(), err)
	}
	if err := v.send(pid, "one\n"); err != nil {
		t.Fatal(err)
	}
	if out, end := rest(t, first); out != "got one\n" || end.GetExitCode() != 0 {
		t.Errorf("first client: %q, %v", out, end)
	}
	var out string
	for second.Receive() {
		out += string(second.Msg().GetEvent().GetData().GetStdout())
	}
	if out != "got one\n" || second.Err() != nil {
		t.Errorf("second client: %q, %v", out, second.Err())
	}
	third, err := v.processes.Connect(t.Context(), connect.NewRequest(&pb.ConnectRequest{Process: byPID(pid)}))
	if err == nil && third.Receive() {
		t.Fatalf("connect to an ended process = %v", third.Msg())
	}
	if err := third.Err(); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("connect to an ended process = %v, want not_found", err)
	}
}

// TestReadersLimit has more clients than may read the output of a process.
func TestReadersLimit(t *testing.T) {
	v := start(t)
	_, pid := v.run("sleep 1000")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := 1; ; i++ { // the first is the stream of the start
		stream, err := v.processes.Connect(ctx, connect.NewRequest(&pb.ConnectRequest{Process: byPID(pid)}))
		if err == nil && stream.Receive() {
			if i >= 64 {
				t.Fatalf("client %d reads", i+1)
			}
			continue
		}
		if err := stream.Err(); connect.CodeOf(err) != connect.CodeResourceExhausted || i != 64 {
			t.Fatalf("client %d = %v, want resource_exhausted for client 65", i+1, err)
		}
		break
	}
	if err := v.kill(pid); err != nil {
		t.Error(err)
	}
}

// TestManyProcesses starts, lists, feeds and ends processes at once.
func TestManyProcesses(t *testing.T) {
	v := start(t)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			stream, err := v.processes.Start(t.Context(), connect.NewRequest(&pb.StartRequest{Process: &pb.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", "read x; echo $x"}}}))
			if err != nil || !stream.Receive() {
				t.Errorf("start = %v", err)
				return
			}
			pid := stream.Msg().GetEvent().GetStart().GetPid()
			list, err := v.processes.List(t.Context(), connect.NewRequest(&pb.ListRequest{}))
			if err != nil {
				t.Errorf("list = %v", err)
				return
			}
			if !slices.ContainsFunc(list.Msg.GetProcesses(), func(p *pb.ProcessInfo) bool { return p.GetPid() == pid }) {
				t.Errorf("list = %v, want process %d in it", list.Msg, pid)
			}
			if err := v.send(pid, "line\n"); err != nil {
				t.Errorf("input = %v", err)
			}
			var out string
			for stream.Receive() {
				out += string(stream.Msg().GetEvent().GetData().GetStdout())
			}
			if out != "line\n" || stream.Err() != nil {
				t.Errorf("output = %q, %v", out, stream.Err())
			}
		})
	}
	group.Wait()
}

// TestWatchersLimit makes watchers at once, more than a sandbox may have.
func TestWatchersLimit(t *testing.T) {
	v := start(t)
	if _, err := v.files.MakeDir(t.Context(), connect.NewRequest(&filepb.MakeDirRequest{Path: "/watched"})); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	var mu sync.Mutex
	var ids []string
	refused := 0
	for range 80 {
		group.Go(func() {
			made, err := v.files.CreateWatcher(t.Context(), connect.NewRequest(&filepb.CreateWatcherRequest{Path: "/watched"}))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				ids = append(ids, made.Msg.GetWatcherId())
			case connect.CodeOf(err) == connect.CodeResourceExhausted:
				refused++
			default:
				t.Errorf("watcher = %v", err)
			}
		})
	}
	group.Wait()
	if len(ids) > 64 || len(ids) == 0 || len(ids)+refused != 80 {
		t.Fatalf("%d watchers, %d refused, want at most 64", len(ids), refused)
	}
	if _, err := v.files.MakeDir(t.Context(), connect.NewRequest(&filepb.MakeDirRequest{Path: "/watched/new"})); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if _, err := v.files.RemoveWatcher(t.Context(), connect.NewRequest(&filepb.RemoveWatcherRequest{WatcherId: id})); err != nil {
			t.Errorf("remove = %v", err)
		}
	}
	if _, err := v.files.GetWatcherEvents(t.Context(), connect.NewRequest(&filepb.GetWatcherEventsRequest{WatcherId: ids[0]})); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("events of a removed watcher = %v, want not_found", err)
	}
	if _, err := v.files.CreateWatcher(t.Context(), connect.NewRequest(&filepb.CreateWatcherRequest{Path: "/watched"})); err != nil {
		t.Errorf("watcher after the others = %v", err)
	}
}
