package edge

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/access"
)

// A body that something still reads when its handler has returned, as of an upload whose client is gone, ends with an
// error. In HTTP/2 a deadline set then is a panic.
func TestBodyReadAfterItsHandler(t *testing.T) {
	returned, read := make(chan struct{}), make(chan error, 1)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		transfer, body := newTransfer(w, r, access.FromContext(r.Context()))
		defer transfer.end()
		go func() {
			<-returned
			_, err := body.Read(make([]byte, 1))
			for err == nil {
				_, err = body.Read(make([]byte, 1))
			}
			read <- err
		}()
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	resp, err := srv.Client().Post(srv.URL, "text/plain", strings.NewReader(strings.Repeat("x", 1<<20)))
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body.Close(); resp.ProtoMajor != 2 {
		t.Fatalf("protocol %s, want HTTP/2", resp.Proto)
	}
	close(returned)
	select {
	case <-read:
	case <-time.After(time.Minute):
		t.Error("the read does not end")
	}
}
