package e2e_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// trail returns the records about a sandbox, the oldest first.
func trail(t *testing.T, s *testserver.Server, sandbox string) []client.AuditRecord {
	t.Helper()
	page, err := s.Audit.List(client.AuditOptions{Object: sandbox, Ascending: true}).Page(t.Context(), client.PageOptions{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	var list []client.AuditRecord
	for _, e := range page.Items {
		list = append(list, e.Record)
	}
	return list
}

// TestCommandsAreRecorded runs commands in every way there is and looks for them
// in the audit log, which must not tell their secrets.
func TestCommandsAreRecorded(t *testing.T) {
	s := testserver.StartSmall(t)
	sb := s.MustCreate(client.CreateOptions{Image: image, Env: map[string]string{"DEPLOY": "of-the-sandbox", "SANDBOX_API_KEY": "of-its-url-0"}})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	secret := client.Command{Argv: []string{"sh", "-c", "exit 3 # by-exec of-the-sandbox of-the-request " + s.Token}, Env: map[string]string{"X": "of-the-request"}}
	if r, err := s.Sandboxes.Exec(ctx, sb.ID, secret); err != nil || r.ExitCode != 3 {
		t.Fatalf("Exec = %+v, %v", r, err)
	}
	if _, err := s.Sandboxes.Exec(ctx, sb.ID, client.Command{Argv: []string{"/by-exec-not-there"}}); err == nil {
		t.Error("a program that is not there was run")
	}
	stream, err := s.Sandboxes.ExecStream(ctx, sb.ID, client.Command{Argv: []string{"echo", "by-stream"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Copy(io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}
	stream.Close()
	session, err := s.Sandboxes.Attach(ctx, sb.ID, client.Command{Argv: []string{"echo", "by-attach"}}, client.AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := session.Copy(io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}
	session.Close()
	if _, err := s.Executions.Start(ctx, sb.ID, client.Command{Argv: []string{"echo", "in-background"}}, client.ExecutionOptions{}); err != nil {
		t.Fatal(err)
	}
	plane := func(key, path, body string) int {
		r, err := http.NewRequestWithContext(ctx, "POST", sb.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+key)
		r.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	large := strings.Repeat("#\\n", 40_000)
	for key, want := range map[string]int{"of-its-url-0": 200, "wrong": 401} {
		if got := plane(key, "/modbox/api/exec", `{"command": "echo by-url of-its-url-0"}`); got != want {
			t.Errorf("exec by URL with key %s: %d, want %d", key, got, want)
		}
	}
	if got := plane("of-its-url-0", "/execute", `{"language": "bash", "code": "echo by-code\n`+large+`"}`); got != 200 {
		t.Errorf("execute by URL: %d", got)
	}
	if _, err := s.Sandboxes.Files.Write(ctx, sb.ID, "/tmp/by-file", strings.NewReader("the-content"), client.WriteOptions{}); err != nil {
		t.Fatal(err)
	}

	// A streamed command has its record when the server is done with it, which is after its exit was sent.
	records := trail(t, s, sb.ID)
	ended := func(what string) bool {
		return slices.ContainsFunc(records, func(r client.AuditRecord) bool { return r.Outcome == "ok" && slices.Contains(r.Command, what) })
	}
	for deadline := time.Now().Add(5 * time.Minute); !ended("by-stream") || !ended("by-attach"); records = trail(t, s, sb.ID) {
		if time.Now().After(deadline) {
			t.Fatalf("no records of how streamed commands ended: %+v", records)
		}
	}
	ends := func(what string) (outcomes []string) {
		for _, r := range records {
			if strings.Contains(strings.Join(r.Command, " ")+r.Details["path"], what) {
				outcomes = append(outcomes, r.Outcome)
			}
		}
		// Streamed commands are recorded as started, others when they are slow.
		if len(outcomes) > 1 && outcomes[0] == "started" && !slices.Contains([]string{"by-stream", "by-attach"}, what) {
			outcomes = outcomes[1:]
		}
		return outcomes
	}
	for what, want := range map[string][]string{
		"by-exec ": {"ok"}, "/by-exec-not-there": {"program_not_found"}, "by-stream": {"started", "ok"}, "by-attach": {"started", "ok"}, "in-background": {"ok"},
		"by-url": {"ok"}, "by-code": {"ok"}, "/tmp/by-file": {"ok"},
	} {
		if got := ends(what); !slices.Equal(got, want) {
			t.Errorf("%s: recorded as %v, want %v", what, got, want)
		}
	}
	refused := 0
	for _, r := range records {
		all := strings.Join(r.Command, " ")
		for name, v := range r.Details {
			all += " " + name + "=" + v
		}
		for _, secret := range []string{"of-the-sandbox", "of-the-request", "of-its-url-0", s.Token, "the-content"} {
			if strings.Contains(all, secret) {
				t.Errorf("record %d holds %s: %s", r.Seq, secret, all)
			}
		}
		switch {
		case r.Via == "" && (r.UserID == "" || r.TokenID == "" || r.Role != "owner"):
			t.Errorf("record %d does not say who: %+v", r.Seq, r)
		case r.WorkspaceID == "" || r.Address != "127.0.0.1" || r.ObjectID != sb.ID || r.ObjectName != sb.Name:
			t.Errorf("record %d: %+v", r.Seq, r)
		case strings.Contains(all, "by-exec ") && (r.Details["exit_code"] != "3" || !strings.Contains(all, "[redacted] [redacted] [redacted]")):
			t.Errorf("record %d: %s", r.Seq, all)
		}
		if r.Via != "" && r.Outcome == "unauthenticated" {
			refused++
		}
	}
	if refused != 1 {
		t.Errorf("%d records of the wrong key, want 1", refused)
	}
}

// TestAuditSurvivesAKill kills the server in the middle of a command.
func TestAuditSurvivesAKill(t *testing.T) {
	s := testserver.StartSmall(t)
	sb := s.MustCreate(client.CreateOptions{Image: image})
	gone := make(chan error, 1)
	go func() {
		_, err := s.Sandboxes.Exec(context.WithoutCancel(t.Context()), sb.ID, client.Command{Argv: []string{"sleep", "600"}})
		gone <- err
	}()
	deadline := time.Now().Add(5 * time.Minute)
	for !slices.ContainsFunc(trail(t, s, sb.ID), func(r client.AuditRecord) bool { return r.Outcome == "started" && r.Action == "exec" }) {
		if time.Now().After(deadline) {
			t.Fatal("a command that goes on is not recorded")
		}
		time.Sleep(50 * time.Millisecond) // until the next look
	}
	s.Kill()
	if err := <-gone; err == nil {
		t.Error("the command ended well although the server was killed")
	}
	s.Launch()
	if _, err := s.Sandboxes.Exec(t.Context(), sb.ID, client.Command{Argv: []string{"true"}}); err != nil {
		t.Fatal(err)
	}
	list := trail(t, s, sb.ID)
	if !slices.ContainsFunc(list, func(r client.AuditRecord) bool { return slices.Equal(r.Command, []string{"sleep", "600"}) }) {
		t.Errorf("the command before the kill is gone: %+v", list)
	}
	report, err := s.Audit.Verify(t.Context())
	if err != nil || !report.OK || report.Records < 3 {
		t.Errorf("Verify = %+v, %v", report, err)
	}
}
