package e2e_test

import (
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// TestLimitsOfCode runs code that exceeds its limits in contexts, which keep their state where they can.
func TestLimitsOfCode(t *testing.T) {
	s := testserver.Start(t)
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/data", Resources: client.Resources{Memory: "1Gi"}})
	c := cells{t, s.Client, sb.ID}
	for _, tc := range []struct {
		language, before, code, after string
		limits                        client.Limits
		limit, status                 string // status "" is any
	}{
		{"python", "kept = 7", "x = bytearray(600 << 20)\nimport time; time.sleep(1000)", "", client.Limits{Memory: "400Mi"}, client.LimitMemory, "lost"},
		{"python", "kept = 7", "while True: pass", "print(kept)", client.Limits{CPUSeconds: 1}, client.LimitCPU, "interrupted"},
		{"python", "kept = 7", "open('/tmp/large', 'wb').write(bytes(2 << 20))", "print(kept)", client.Limits{FileSize: "1Mi"}, client.LimitFileSize, ""},
		{"python", "kept = 7", "import subprocess, time\np = [subprocess.Popen(['sleep', '1000']) for i in range(8)]\ntime.sleep(1000)", "", client.Limits{Processes: 5}, client.LimitProcesses, "lost"},
		{"python", "kept = 7", "print('within')", "print(kept)", client.Limits{Memory: "400Mi", CPUSeconds: 60, FileSize: "1Mi", Processes: 16}, "", "ok"},
		{"javascript", "globalThis.kept = 7", "for (;;);", "console.log(kept)", client.Limits{CPUSeconds: 1}, client.LimitCPU, "interrupted"},
		{"javascript", "globalThis.kept = 7", "require('fs').writeFileSync('/tmp/larger', Buffer.alloc(2 << 20))", "console.log(kept)", client.Limits{FileSize: "1Mi"}, client.LimitFileSize, ""},
		{"bash", "kept=7", "while :; do :; done", "echo $kept", client.Limits{CPUSeconds: 1}, client.LimitCPU, "interrupted"},
		{"bash", "kept=7", "head -c 2000000 /dev/zero >/tmp/largest", "echo $kept", client.Limits{FileSize: "1Mi"}, client.LimitFileSize, ""},
		{"bash", "kept=7", "for i in 1 2 3 4 5 6; do sleep 1000 & done; wait", "", client.Limits{Processes: 4}, client.LimitProcesses, "lost"},
	} {
		c.want(tc.language, tc.before, "")
		res, err := c.runCode(t.Context(), tc.code, client.CodeOptions{Language: tc.language, Limits: tc.limits})
		if err != nil {
			t.Fatalf("%s %q: %v", tc.language, tc.code, err)
		}
		if res.LimitExceeded != tc.limit || tc.status != "" && res.Status != tc.status {
			t.Errorf("%s %q with %+v = %+v, want limit %q and status %q", tc.language, tc.code, tc.limits, res, tc.limit, tc.status)
		}
		if tc.after != "" {
			c.want(tc.language, tc.after, "7\n")
		}
	}
	// Without limits the same code is free again, and an interpreter that was lost begins anew.
	c.want("python", "open('/tmp/large', 'wb').write(bytes(2 << 20)); print('written')", "written\n")
	// Processes that were killed end a moment later.
	gone := "while grep -ls sleep /proc/[0-9]*/comm; do python3 -c 'import time; time.sleep(0.1)'; done"
	if res, err := s.Sandboxes.Exec(t.Context(), sb.ID, client.Command{Shell: gone, Timeout: time.Minute}); err != nil || res.ExitCode != 0 {
		t.Errorf("processes of code that exceeded its limit are left: %+v, %v", res, err)
	}

	for _, tc := range []struct {
		limits client.Limits
		field  string
	}{
		{client.Limits{Memory: "64Gi"}, "limits.memory"}, {client.Limits{Memory: "1"}, "limits.memory"}, {client.Limits{FileSize: "64Ti"}, "limits.file_size"},
		{client.Limits{CPUSeconds: -1}, "limits.cpu_seconds"}, {client.Limits{Processes: -1}, "limits.processes"},
	} {
		_, err := c.runCode(t.Context(), "1", client.CodeOptions{Limits: tc.limits})
		if !client.IsCode(err, client.Invalid) || !strings.Contains(err.Error(), tc.field) {
			t.Errorf("limits %+v: %v, want the field %s named", tc.limits, err, tc.field)
		}
		_, err = s.Sandboxes.Contexts.Create(t.Context(), sb.ID, client.ContextOptions{Limits: &tc.limits})
		if !client.IsCode(err, client.Invalid) || !strings.Contains(err.Error(), tc.field) {
			t.Errorf("a context with limits %+v: %v, want the field %s named", tc.limits, err, tc.field)
		}
	}
}

// TestLimitsOfCodeOutliveSaves has limits of a context and of a run, over a fork under way and a pause.
func TestLimitsOfCodeOutliveSaves(t *testing.T) {
	s := testserver.StartSmall(t)
	sb := s.MustCreate(client.CreateOptions{Image: image})
	made, err := s.Sandboxes.Contexts.Create(t.Context(), sb.ID, client.ContextOptions{Language: "bash", Limits: &client.Limits{Processes: 3, FileSize: "1Mi"}})
	if err != nil {
		t.Fatal(err)
	}
	if made.Limits == nil || made.Limits.Processes != 3 || made.Limits.FileSize != "1Mi" {
		t.Errorf("the context has limits %+v", made.Limits)
	}
	const burn = "echo go; until [ -e /tmp/on ]; do sleep 0.05; done; while :; do :; done"
	type end struct {
		limit string
		err   error
	}
	ended, going := make(chan end, 1), make(chan struct{})
	go func() {
		var e end
		e.err = s.Sandboxes.RunCodeStream(t.Context(), sb.ID, burn, client.CodeOptions{Language: "bash", Limits: client.Limits{CPUSeconds: 3}}, func(ev client.CodeEvent) error {
			if ev.Type == "stdout" {
				close(going)
			}
			e.limit = ev.LimitExceeded
			return nil
		})
		ended <- e
	}()
	select {
	case <-going:
	case e := <-ended:
		t.Fatalf("code ended: %+v", e)
	}
	forks, err := s.Sandboxes.Fork(t.Context(), sb.ID, client.ForkOptions{})
	if err != nil || forks[0].Err != nil {
		t.Fatal(err, forks)
	}
	if _, err := s.Sandboxes.Exec(t.Context(), sb.ID, client.Command{Argv: []string{"touch", "/tmp/on"}}); err != nil {
		t.Fatal(err)
	}
	if e := <-ended; e.err != nil || e.limit != client.LimitCPU {
		t.Errorf("code that was forked while it ran: limit %q, %v", e.limit, e.err)
	}
	if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	for name, ref := range map[string]string{"after a pause": sb.ID, "in a fork": forks[0].Sandbox.ID} {
		c := cells{t, s.Client, ref}
		res, err := c.runCode(t.Context(), "head -c 2000000 /dev/zero >/tmp/large", client.CodeOptions{ContextID: made.ID})
		if err != nil || res.LimitExceeded != client.LimitFileSize {
			t.Errorf("%s: %+v, %v, want the limit of files of the context", name, res, err)
		}
		res, err = c.runCode(t.Context(), "head -c 2000000 /dev/zero >/tmp/large", client.CodeOptions{ContextID: made.ID, Limits: client.Limits{CPUSeconds: 60}})
		if err != nil || res.LimitExceeded != "" {
			t.Errorf("%s: %+v, %v, want that limits of the run take the place of limits of the context", name, res, err)
		}
		res, err = c.runCode(t.Context(), "for i in 1 2 3 4 5; do sleep 1000 & done; wait", client.CodeOptions{ContextID: made.ID})
		if err != nil || res.LimitExceeded != client.LimitProcesses || res.Status != "lost" {
			t.Errorf("%s: %+v, %v, want the limit of processes of the context", name, res, err)
		}
	}
}
