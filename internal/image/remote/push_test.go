package remote_test

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	ociname "github.com/google/go-containerregistry/pkg/name"

	"github.com/modbox/modbox/internal/image/registrytest"
	"github.com/modbox/modbox/internal/image/remote"
	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestPushToARegistryThatAnswersEarly: the push to a registry that refuses a layer while it reads
// it ends with an error, and the layer can be read until its end.
func TestPushToARegistryThatAnswersEarly(t *testing.T) {
	const size = 16 << 20
	img := randomImage(t, size)
	reg := registrytest.New(t)
	dest, err := ociname.NewTag(reg.Host + "/app:v1")
	if err != nil {
		t.Fatal(err)
	}
	var reported atomic.Int64
	push := func() error {
		repo, err := client("127.0.0.1").Open(t.Context(), dest.Context(), registry.Puller{}, remote.Push)
		if err != nil {
			return err
		}
		return repo.Push(t.Context(), dest.TagStr(), img, func(done, _ int64) { reported.Store(done) })
	}
	read, returned := make(chan int64, 8), make(chan struct{})
	reg.On(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPatch || r.ContentLength >= 0 && r.ContentLength < 1<<20 {
			return false
		}
		control := http.NewResponseController(w)
		if err := control.EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Length", "2") // so that the answer is complete
		w.WriteHeader(http.StatusBadRequest)
		_, err := io.WriteString(w, "{}")
		if err := errors.Join(err, control.Flush()); err != nil {
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
	reg.On(nil)
	if err := push(); err != nil || reported.Load() < size {
		t.Errorf("Push after the first ended = %v, with a report of %d bytes", err, reported.Load())
	}
}
