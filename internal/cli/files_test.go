package cli

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/cli/base"
)

func TestEnvAndFilesOfASandbox(t *testing.T) {
	s := apitest.New(t)
	tryWith := func(input string, args ...string) result {
		var out, errOut bytes.Buffer
		a := &base.Env{Stdin: strings.NewReader(input), Stdout: &out, Stderr: &errOut, Environ: []string{"MODBOX_URL=" + s.URL, "MODBOX_API_TOKEN=" + s.Token, "MINE=yes"}}
		code := execute(t.Context(), a, args)
		return result{code, out.String(), errOut.String()}
	}
	try := func(args ...string) result { return tryWith("", args...) }
	run := func(args ...string) string {
		t.Helper()
		r := try(args...)
		if r.code != 0 {
			t.Fatalf("modbox %v = %+v", args, r)
		}
		return r.stdout
	}
	run("create", "--name", "a", "-e", "FIRST=1")
	if got, want := run("env", "a", "MINE", "TWO=a=b"), "FIRST=1\nMINE=yes\nTWO=a=b\n"; got != want {
		t.Errorf("env after setting = %q, want %q", got, want)
	}
	if got, want := run("env", "a", "--unset", "FIRST"), "MINE=yes\nTWO=a=b\n"; got != want {
		t.Errorf("env after deleting = %q, want %q", got, want)
	}
	if got, want := run("env", "a"), "MINE=yes\nTWO=a=b\n"; got != want {
		t.Errorf("env = %q, want %q", got, want)
	}
	if r := try("env", "a", "X=1", "--unset", "X"); r.code != base.ExitUsage {
		t.Errorf("setting and deleting one variable = %+v, want code %d", r, base.ExitUsage)
	}

	dir := t.TempDir() // the fake driver's sandboxes have the host's files
	run("files", "mkdir", "-p", "a", dir+"/sub/deep")
	run("files", "mv", "a", dir+"/sub/deep", dir+"/moved")
	if got := run("files", "ls", "a", dir); !strings.Contains(got, "moved") || !strings.Contains(got, "sub") {
		t.Errorf("files ls = %s", got)
	}
	if got := run("files", "stat", "a", dir+"/moved"); !strings.Contains(got, "directory") {
		t.Errorf("files stat = %s", got)
	}
	archive := run("cp", "a:"+dir, "-")
	run("files", "mkdir", "a", dir+"/copy")
	if r := tryWith(archive, "cp", "-", "a:"+dir+"/copy"); r.code != 0 {
		t.Errorf("cp of an archive into a directory = %+v", r)
	}
	if got := run("files", "ls", "a", dir+"/copy"); !strings.Contains(got, "moved") || !strings.Contains(got, "sub") {
		t.Errorf("files ls of the copy = %s", got)
	}
	run("files", "rm", "-r", "a", dir+"/copy")
	run("files", "mkdir", "a", dir+"/moved/full")
	if r := try("files", "rm", "a", dir+"/moved"); r.code != base.ExitFailure {
		t.Errorf("files rm of a directory that is not empty = %+v, want code %d", r, base.ExitFailure)
	}
	run("files", "rm", "-r", "a", dir+"/moved", dir+"/sub")
	if got := run("files", "ls", "a", dir); strings.Contains(got, "moved") || strings.Contains(got, "sub") {
		t.Errorf("files ls after rm = %s", got)
	}
}

// TestUpdateOfASandbox changes the settings that flags name, and no others.
func TestUpdateOfASandbox(t *testing.T) {
	s := apitest.New(t)
	run := func(args ...string) result {
		return invoke(t, nil, "", append(args, "--url", s.URL, "--token", s.Token)...)
	}
	if r := run("create", "--name", "a", "--ttl", "10m"); r.code != 0 {
		t.Fatalf("create = %+v", r)
	}
	for _, c := range []struct{ flag, value, want string }{
		{"--checkpoint-interval", "10m", "600 600"},
		{"--ttl", "1h", "3600 600"},
		{"--ttl", "off", "0 600"},
		{"--checkpoint-interval", "off", "0 0"},
	} {
		if r := run("update", "a", c.flag, c.value); r.code != 0 {
			t.Errorf("update %s %s = %+v", c.flag, c.value, r)
		}
		if r := run("ls", "-o", "template={{.ttl_seconds}} {{.checkpoint_interval_seconds}}"); strings.TrimSpace(r.stdout) != c.want {
			t.Errorf("after update %s %s the sandbox has %q, want %q", c.flag, c.value, r.stdout, c.want)
		}
	}
	for _, args := range [][]string{{"update", "a"}, {"update", "a", "--ttl", "soon"}} {
		if r := run(args...); r.code != base.ExitUsage {
			t.Errorf("modbox %v = %+v, want that the arguments are wrong", args, r)
		}
	}
}

// notes is an output that tells a function all that it has got so far.
type notes struct {
	all bytes.Buffer
	got func(all string)
}

func (n *notes) Write(p []byte) (int, error) {
	n.all.Write(p)
	n.got(n.all.String())
	return len(p), nil
}

// TestEventsOfAll lists the events of all sandboxes, and follows them until it is interrupted.
func TestEventsOfAll(t *testing.T) {
	s := apitest.New(t)
	at := []string{"--url", s.URL, "--token", s.Token}
	create := func(name string) {
		t.Helper()
		if r := invoke(t, nil, "", append([]string{"create", "--name", name}, at...)...); r.code != 0 {
			t.Fatalf("create = %+v", r)
		}
	}
	create("a")
	create("b")
	r := invoke(t, nil, "", append([]string{"events", "--type", "created", "--limit", "1", "--json"}, at...)...)
	if r.code != 0 || strings.Count(r.stdout, "\n") != 1 || !strings.Contains(r.stdout, `"sandbox_name":"b"`) {
		t.Errorf("the last event of all = %+v, want the create of b", r)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	begun := make(chan struct{})
	begin := sync.OnceFunc(func() { close(begun) })
	out := &notes{got: func(all string) {
		if strings.Contains(all, `"sandbox_name":"b"`) {
			begin()
		}
		if strings.Contains(all, `"sandbox_name":"c"`) {
			interrupt()
		}
	}}
	ended := make(chan int, 1)
	go func() {
		env := &base.Env{Stdin: strings.NewReader(""), Stdout: out, Stderr: io.Discard}
		ended <- execute(ctx, env, append([]string{"events", "--follow", "--since", "1h", "--type", "created", "--json"}, at...))
	}()
	<-begun
	create("c")
	if code := <-ended; code != base.ExitInterrupt {
		t.Errorf("events --follow ended with code %d", code)
	}
	var names []string
	for line := range strings.Lines(out.all.String()) {
		_, rest, _ := strings.Cut(line, `"sandbox_name":"`)
		name, _, _ := strings.Cut(rest, `"`)
		names = append(names, name)
	}
	if !slices.Equal(names, []string{"a", "b", "c"}) {
		t.Errorf("events of %v, want one of each of a, b and c: %s", names, out.all.String())
	}
}
