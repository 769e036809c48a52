package e2e_test

import (
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// screenPrograms replaces the programs that recordings use. The program that records appends to its file
// until a signal ends it, and completes the file then, as ffmpeg does.
const screenPrograms = `mkdir /opt/screen && cd /opt/screen
cat >xdotool <<'END'
#!/bin/sh
printf 'WIDTH=800\nHEIGHT=600\nX=1\nY=2\n'
END
cat >ffmpeg <<'END'
#!/bin/sh
[ "$1" != -version ] || exit 0
for file; do :; done
trap 'echo complete >>"$file"; exit 255' TERM
: >"$file"
while :; do echo frame >>"$file"; sleep 0.05; done
END
chmod +x xdotool ffmpeg`

// recorded is a sandbox whose screen can be recorded.
type recorded struct {
	*testing.T
	*testserver.Server
	id string
}

// desktop returns the desktop of the sandbox, by the present address of the server.
func (r *recorded) desktop() *client.Desktop { return r.Sandboxes.Desktop(r.id) }

func newRecorded(t *testing.T) *recorded {
	t.Helper()
	s := testserver.StartSmall(t)
	sb := s.MustCreate(client.CreateOptions{Image: image, Env: map[string]string{"PATH": "/opt/screen:/usr/local/bin:/usr/bin:/bin", "DISPLAY": ":0"}})
	r := &recorded{t, s, sb.ID}
	if res := s.Bash(sb.ID, screenPrograms, time.Minute); res.ExitCode != 0 {
		t.Fatalf("the programs of the screen: %+v", res)
	}
	return r
}

// list returns the recordings.
func (r *recorded) list() []client.Recording {
	r.Helper()
	list, err := r.desktop().Recordings().Collect(r.Context())
	if err != nil {
		r.Fatalf("list the recordings: %v", err)
	}
	return list
}

// grown waits until the only recording is under way and has more than a number of bytes, and returns how many.
func (r *recorded) grown(above int64) int64 {
	r.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(50 * time.Millisecond) { // polling another process
		list := r.list()
		if len(list) != 1 || list[0].State != "recording" || list[0].EndedAt != nil {
			r.Fatalf("the recordings are %+v, want one under way", list)
		}
		if n := list[0].SizeBytes; n != nil && *n > above {
			return *n
		}
		if time.Now().After(deadline) {
			r.Fatalf("the recording does not grow beyond %d bytes: %+v", above, list)
		}
	}
}

// TestRecordingGoesOn checks that a recording goes on after a pause and a resume, beside a fork, and after the
// server was killed, and that its file is complete when it is stopped, also while the sandbox is paused.
func TestRecordingGoesOn(t *testing.T) {
	r := newRecorded(t)
	film, err := r.desktop().Record(t.Context(), client.RecordOptions{})
	if err != nil || film.State != "recording" {
		t.Fatalf("record: %+v, %v", film, err)
	}
	size := r.grown(0)
	if _, err := r.Sandboxes.Pause(t.Context(), r.id); err != nil {
		t.Fatal(err)
	}
	if list := r.list(); len(list) != 1 || list[0].State != "recording" || list[0].SizeBytes != nil {
		t.Errorf("the recordings of the paused sandbox are %+v, want one under way without a size", list)
	}
	if sb, err := r.Sandboxes.Get(t.Context(), r.id); err != nil || sb.State != client.Paused {
		t.Errorf("after a list of recordings the sandbox is %+v, %v, want it paused", sb, err)
	}
	if _, err := r.Sandboxes.Resume(t.Context(), r.id, client.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	size = r.grown(size)
	forks, err := r.Sandboxes.Fork(t.Context(), r.id, client.ForkOptions{})
	if err != nil || forks[0].Err != nil {
		t.Fatal(err, forks)
	}
	child := forks[0].Sandbox.ID
	if list, err := r.Sandboxes.Desktop(child).Recordings().Collect(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("the recordings of the fork are %+v, %v, want none: they are the parent's", list, err)
	}
	size = r.grown(size)
	r.Kill()
	r.Launch()
	r.grown(size)
	if _, err := r.Sandboxes.Pause(t.Context(), r.id); err != nil {
		t.Fatal(err)
	}
	done, err := r.desktop().StopRecording(t.Context(), film.ID) // resumes the sandbox
	if err != nil || done.State != "done" || done.EndedAt == nil || done.Path != film.Path {
		t.Errorf("stop: %+v, %v", done, err)
	}
	if got := r.Bash(r.id, "tail -n 1 "+film.Path, time.Minute).Stdout; strings.TrimSpace(string(got)) != "complete" {
		t.Errorf("the file of the recording ends with %q, want it complete", got)
	}
	// The copy in the fork does not end with the parent's.
	if got := r.Bash(child, "tail -n 1 "+film.Path+"; pgrep -f /opt/screen/ffmpeg", time.Minute); strings.Contains(string(got.Stdout), "complete") || got.ExitCode != 0 {
		t.Errorf("in the fork: %+v, want the copy under way", got)
	}
	if err := r.desktop().DeleteRecording(t.Context(), film.ID); err != nil {
		t.Fatal(err)
	}
	if res := r.Bash(r.id, "test -e "+film.Path, time.Minute); res.ExitCode == 0 || len(r.list()) != 0 {
		t.Errorf("after it was deleted the file is there: %+v; the list is %+v", res, r.list())
	}
}

// TestRecordingsAreBounded has a tenant who records as often as possible.
func TestRecordingsAreBounded(t *testing.T) {
	r := newRecorded(t)
	const requests = 20
	type answer struct {
		film *client.Recording
		err  error
	}
	answers := make(chan answer, requests)
	for range requests { // all at once
		go func() {
			film, err := r.desktop().Record(t.Context(), client.RecordOptions{})
			answers <- answer{film, err}
		}()
	}
	var films []*client.Recording
	for range requests {
		switch a := <-answers; {
		case a.err == nil:
			films = append(films, a.film)
		case !client.IsCode(a.err, client.QuotaExceeded):
			t.Errorf("record: %v, want quota_exceeded", a.err)
		}
	}
	if len(films) != 4 || len(r.list()) != 4 {
		t.Errorf("%d of %d requests record, the list is %+v, want 4", len(films), requests, r.list())
	}
	for _, f := range films {
		if _, err := r.desktop().StopRecording(t.Context(), f.ID); err != nil {
			t.Error(err)
		}
	}
	if res := r.Bash(r.id, "truncate -s 11G "+films[0].Path, time.Minute); res.ExitCode != 0 {
		t.Fatalf("a large file: %+v", res)
	}
	if _, err := r.desktop().Record(t.Context(), client.RecordOptions{}); !client.IsCode(err, client.QuotaExceeded) || !strings.Contains(err.Error(), "max_bytes") {
		t.Errorf("record beside a file of 11 GiB: %v, want quota_exceeded", err)
	}
	if err := r.desktop().DeleteRecording(t.Context(), films[0].ID); err != nil {
		t.Fatal(err)
	}
	if film, err := r.desktop().Record(t.Context(), client.RecordOptions{MaxBytes: 1 << 20}); err != nil {
		t.Errorf("record after the large file is deleted: %+v, %v", film, err)
	}
}
