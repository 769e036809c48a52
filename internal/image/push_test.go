package image_test

import (
	"archive/tar"
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestPushToARegistryThatAnswersEarly: one that refuses a layer while it still reads
// it gets an error of the push, and no more.
func TestPushToARegistryThatAnswersEarly(t *testing.T) {
	s := open(t, t.TempDir(), &fake{tar: small(t, "one")})
	random := make([]byte, 16<<20)
	_, _ = rand.Read(random) // never fails
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "random", Mode: 0o644, Size: int64(len(random))})
	if err := errors.Join(err, second(w.Write(random)), w.Close()); err != nil {
		t.Fatal(err)
	}
	base, err := s.Commit(t.Context(), image.CommitRequest{Layer: &layer, Owner: "me"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Finish(t.Context(), image.FinishRequest{Base: base.Digest, Owner: "me", Name: "app", Tag: "v1"}); err != nil {
		t.Fatal(err)
	}
	reg := newRegistry(t)
	to := reg.host + "/app:v1"
	var told atomic.Int64
	push := func() error {
		return s.Push(t.Context(), sandbox.Puller{Workspace: "me"}, "app:v1", to, func(e phase.Event) { told.Store(e.Done) })
	}
	read, returned := make(chan int64, 8), make(chan struct{})
	reg.on(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPatch || r.ContentLength < 1<<20 {
			return false
		}
		control := http.NewResponseController(w)
		if err := control.EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Length", "2") // so that the answer is complete
		w.WriteHeader(http.StatusBadRequest)
		if err := errors.Join(second(io.WriteString(w, "{}")), control.Flush()); err != nil {
			t.Error(err)
		}
		<-returned
		n, _ := io.Copy(io.Discard, r.Body) // the client may break off
		read <- n
		return true
	})
	wantCode(t, "Push", push(), sandbox.Unavailable)
	close(returned)
	<-read
	reg.on(nil)
	if err := push(); err != nil || told.Load() < int64(len(random)) {
		t.Errorf("Push once it is read = %v, having told of %d bytes", err, told.Load())
	}
}
