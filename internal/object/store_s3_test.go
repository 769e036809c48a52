package object_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/object"
	"github.com/modbox/modbox/internal/object/objecttest"
	"github.com/modbox/modbox/internal/sandbox"
)

func TestS3ServerThatIsKilled(t *testing.T) {
	server := objecttest.Start(t)
	testCutUpload(t, server.URL("p"), server.Kill, server.Launch)
}

// testCutUpload ends the server of a bucket in the middle of an upload, and sends the rest to the next.
func testCutUpload(t *testing.T, url string, end, launch func()) {
	s, err := object.Open(t.Context(), url, object.Options{Create: true, Patience: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	data := random(12 * object.ChunkBytes)
	u, err := s.NewUpload(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = u.File(&killer{bytes.NewReader(data), 8 * object.ChunkBytes, end}, int64(len(data)))
	_, werr := u.Wait()
	u.Close()
	if name, _, _ := strings.Cut(url, "?"); sandbox.CodeOf(werr) != sandbox.Unavailable || !strings.Contains(werr.Error(), name) {
		t.Fatalf("upload to a server that has ended: %v, %v, want code unavailable and the bucket", err, werr)
	}
	launch()
	names, counts := upload(t, s, data)
	// Of the first eight, up to four were on the way.
	if counts.Sent == 0 || counts.Sent > 8 {
		t.Errorf("the next upload: %+v, want the rest", counts)
	}
	if got, err := download(t, s, names[0], len(data)); err != nil || !bytes.Equal(got, data) {
		t.Errorf("the file is another: %v", err)
	}
}

// killer calls kill once after some bytes.
type killer struct {
	*bytes.Reader
	left int
	kill func()
}

func (k *killer) Read(p []byte) (int, error) {
	n, err := k.Reader.Read(p)
	if k.left > 0 && k.left <= n {
		k.kill()
	}
	k.left -= n
	return n, err
}

// TestS3ServerThatComesBack goes on when the server is away for a short time.
func TestS3ServerThatComesBack(t *testing.T) {
	server := objecttest.Start(t)
	s := open(t, server.URL("p"), nil)
	server.Kill()
	done := make(chan error)
	go func() { done <- s.Put(context.WithoutCancel(t.Context()), "backups/1", []byte("x")) }()
	server.Launch()
	if err := <-done; err != nil {
		t.Errorf("Put = %v", err)
	}
}

func TestS3ThatRefuses(t *testing.T) {
	server := objecttest.Start(t)
	missing := strings.Replace(server.URL("p"), "//bucket/", "//missing/", 1)
	if _, err := object.Open(t.Context(), missing, object.Options{Create: true}); sandbox.CodeOf(err) != sandbox.NotFound || !strings.Contains(err.Error(), "s3://missing/p") {
		t.Errorf("a bucket that does not exist: %v, want code not_found and the bucket", err)
	}
	if _, err := object.Open(t.Context(), server.URL("p"), object.Options{}); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("a bucket without a store: %v, want code not_found", err)
	}
	t.Setenv("AWS_SECRET_ACCESS_KEY", "wrong")
	if _, err := object.Open(t.Context(), server.URL("p"), object.Options{Create: true}); sandbox.CodeOf(err) != sandbox.Forbidden {
		t.Errorf("wrong credentials: %v, want code forbidden", err)
	}
	server.Kill()
	if _, err := object.Open(t.Context(), server.URL("p"), object.Options{Create: true, Patience: time.Second}); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("a server that is away: %v, want code unavailable", err)
	}
}
