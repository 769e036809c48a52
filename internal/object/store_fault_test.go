package object_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/object"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestListOfABucketThatCannotBeRead: no object is not the same as no answer.
func TestListOfABucketThatCannotBeRead(t *testing.T) {
	b := directory(t)
	s := open(t, b.url, nil)
	none := func(object.Object) error { return nil }
	if err := s.List(t.Context(), "backups/", none); err != nil {
		t.Errorf("List of nothing = %v", err)
	}
	if err := os.WriteFile(b.path("backups"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.List(t.Context(), "backups/", none); err == nil {
		t.Error("List of a directory that is a file succeeded")
	}
	if err := os.Remove(b.path("store.json")); err != nil {
		t.Fatal(err)
	}
	if err := s.List(t.Context(), "other/", none); err == nil {
		t.Error("List in a directory without a store, as after unmounting it, succeeded")
	}
}

func TestBucketBehindALink(t *testing.T) {
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	s := open(t, "file://"+link, nil)
	upload(t, s, []byte("x"))
	if got := list(t, s, ""); len(got) != 2 {
		t.Errorf("List = %v, want a blob and store.json", got)
	}
}

// TestLeaseThatLapsed moves the clock of leases.
func TestLeaseThatLapsed(t *testing.T) {
	var clock atomic.Int64
	s, err := object.Open(t.Context(), directory(t).url, object.Options{Create: true}.WithClock(func() time.Duration { return time.Duration(clock.Load()) }))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, tt := range []struct {
		name  string
		after []time.Duration // of the renewals
		then  time.Duration
		want  sandbox.Code
	}{
		{"renewed in time", []time.Duration{15 * time.Minute, 15 * time.Minute}, 15 * time.Minute, ""},
		{"not renewed", nil, 40 * time.Minute, sandbox.Unavailable},
		{"renewed too late", []time.Duration{5 * time.Minute, 40 * time.Minute, time.Minute}, time.Minute, sandbox.Unavailable},
	} {
		u, err := s.NewUpload(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range tt.after {
			clock.Add(int64(d))
			if err := u.Renew(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		clock.Add(int64(tt.then))
		if _, err := u.Wait(); (err == nil) != (tt.want == "") || err != nil && sandbox.CodeOf(err) != tt.want {
			t.Errorf("%s: Wait = %v, want code %q", tt.name, err, tt.want)
		}
		u.Close()
	}
	names, _ := upload(t, s, []byte("unused"))
	c, err := s.Collect(t.Context(), 0, func(context.Context) (map[object.Name]bool, error) {
		clock.Add(int64(40 * time.Minute))
		return nil, nil
	})
	if sandbox.CodeOf(err) != sandbox.Unavailable || c.Removed > 0 {
		t.Errorf("a collection that stood still = %+v, %v, want code unavailable", c, err)
	}
	if _, err := s.Blob(t.Context(), names[0][0]); err != nil {
		t.Error(err)
	}
}

// TestFailedDownloadsLeaveNothingBehind reads from a store after more failures than it has places for blobs.
func TestFailedDownloadsLeaveNothingBehind(t *testing.T) {
	s := open(t, directory(t).url, nil)
	for range 100 {
		if err := s.Download(t.Context(), make([]object.Name, 20), 20*object.ChunkBytes, nil); sandbox.CodeOf(err) != sandbox.NotFound {
			t.Fatalf("Download of nothing = %v, want code not_found", err)
		}
	}
}

// TestReadersDoNotWaitLong has a server that refuses all requests, and a store that is being opened with more patience.
func TestReadersDoNotWaitLong(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	asked := make(chan struct{}, 1000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer server.Close()
	used := func(context.Context) (bool, error) { return true, nil }
	l := object.NewLazy("s3://bucket?region=eu-central-1&use_path_style=true&endpoint="+server.URL, "", used)
	if _, err := l.Within(t.Context(), time.Second); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("Within = %v, want unavailable", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	opened := make(chan error, 1)
	go func() {
		_, err := l.Open(ctx, false)
		opened <- err
	}()
	for len(asked) > 0 {
		<-asked
	}
	<-asked // by Open
	if _, err := l.Within(t.Context(), time.Second); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("Within beside Open = %v, want unavailable", err)
	}
	select {
	case err := <-opened:
		t.Errorf("Open has ended: %v", err)
	default:
	}
	cancel()
	<-opened
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestRequestWithoutAnswerIsRepeated has a server that answers only the second request.
func TestRequestWithoutAnswerIsRepeated(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) == 1 {
			<-r.Context().Done()
			return
		}
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte("<Error><Code>NoSuchKey</Code></Error>"))
	}))
	defer server.Close()
	url := "s3://bucket?region=eu-central-1&use_path_style=true&endpoint=" + server.URL
	_, err := object.Open(t.Context(), url, object.Options{}.WithAnswer(100*time.Millisecond))
	if sandbox.CodeOf(err) != sandbox.NotFound || requests.Load() != 2 {
		t.Errorf("Open = %v after %d requests, want code not_found after two", err, requests.Load())
	}
}
