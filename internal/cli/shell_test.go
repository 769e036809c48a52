package cli

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/cli/base"
)

// TestShell types into the shell of a paused sandbox.
func TestShell(t *testing.T) {
	s := apitest.New(t)
	s.Want(http.StatusCreated, "POST", "/v1/sandboxes", map[string]any{"name": "box", "wait_seconds": 60})
	s.Want(http.StatusOK, "POST", "/v1/sandboxes/box/pause", nil)
	keyboard, terminal, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer keyboard.Close()
	defer terminal.Close()
	env := &base.Env{Stdin: terminal, Stdout: terminal, Stderr: terminal, Environ: []string{
		"MODBOX_URL=" + s.URL, "MODBOX_API_TOKEN=" + s.Token, "HOME=" + t.TempDir(), "TERM=of-mine",
	}}
	ended := make(chan int, 1)
	go func() { ended <- execute(t.Context(), env, []string{"shell", "box"}) }()
	if err := keyboard.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := keyboard.WriteString("echo $((40+2)) $TERM; exit 7\n"); err != nil {
		t.Fatal(err)
	}
	var seen bytes.Buffer
	for buf := make([]byte, 4096); !strings.Contains(seen.String(), "42 of-mine"); {
		n, err := keyboard.Read(buf)
		if err != nil {
			t.Fatalf("the terminal showed %q, then %v", seen.String(), err)
		}
		seen.Write(buf[:n])
	}
	if code := <-ended; code != 7 {
		t.Errorf("exit code %d, want the shell's", code)
	}
}

func TestShellNeedsATerminal(t *testing.T) {
	if r := invoke(t, nil, "", "shell", "box"); r.code != base.ExitUsage || !strings.Contains(r.stderr, "modbox exec") {
		t.Errorf("modbox shell without a terminal = %+v", r)
	}
}

func TestURL(t *testing.T) {
	for name, test := range map[string]struct {
		args     []string
		out      string
		requests []string
	}{
		"published":     {[]string{"url", "demo", "3000"}, "https://p3000-x.example.com\n", []string{"GET /ports"}},
		"private":       {[]string{"url", "demo", "5173"}, "https://p5173-x.example.com/?modbox_token=mbl_x\n", []string{"GET /ports", "POST /ports/5173/links {}"}},
		"closed":        {[]string{"url", "demo", "3000", "--private"}, "https://p5173-x.example.com/?modbox_token=mbl_x\n", []string{"GET /ports", `PUT /ports/3000 {"access":"private"}`, "POST /ports/3000/links {}"}},
		"not_published": {[]string{"url", "demo", "8080", "--json"}, "\"access\": \"private\"", []string{"GET /ports", `PUT /ports/8080 {"access":"public"}`, "POST /ports/8080/links {}"}}, // as the fake answers
	} {
		t.Run(name, func(t *testing.T) {
			s := new(portServer)
			r := invoke(t, s, "", test.args...)
			for i := range s.seen {
				s.seen[i] = strings.Replace(s.seen[i], "/v1/sandboxes/demo", "", 1)
			}
			if r.code != 0 || !strings.Contains(r.stdout, test.out) || !slices.Equal(s.seen, test.requests) {
				t.Errorf("modbox %v = %+v after %q, want %q after %q", test.args, r, s.seen, test.out, test.requests)
			}
		})
	}
	if r := invoke(t, nil, "", "url", "demo", "0"); r.code != base.ExitUsage || !strings.Contains(r.stderr, "no port") {
		t.Errorf("modbox url demo 0 = %+v", r)
	}
}

func TestOpen(t *testing.T) {
	if r := invoke(t, new(portServer), "", "open", "demo", "3000"); r.code != base.ExitUsage || !strings.Contains(r.stderr, "BROWSER") {
		t.Errorf("modbox open without a browser = %+v", r)
	}
	opened := filepath.Join(t.TempDir(), "opened")
	if err := os.WriteFile(opened+".sh", []byte("#!/bin/sh\necho \"$1\" >"+opened+".new && mv "+opened+".new "+opened+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(new(portServer))
	defer srv.Close()
	var out bytes.Buffer
	env := &base.Env{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out, Environ: []string{
		"MODBOX_URL=" + srv.URL, "MODBOX_API_TOKEN=mbx_test", "BROWSER=" + opened + ".sh", "PATH=" + os.Getenv("PATH"),
	}}
	const url = "https://p3000-x.example.com"
	if code := execute(t.Context(), env, []string{"open", "demo", "3000"}); code != 0 || out.String() != url+"\n" {
		t.Errorf("modbox open = %d, %q", code, out.String())
	}
	for deadline := time.Now().Add(time.Minute); ; {
		if b, err := os.ReadFile(opened); err == nil {
			if string(b) != url+"\n" {
				t.Errorf("the browser opened %q", b)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the browser was not started")
		}
	}
}
