package edge

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

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

// A client that disconnects in the middle of an answer gets no second status, about which net/http would complain.
func TestClientGoneInTheMiddleOfAnAnswer(t *testing.T) {
	var complaints, requests bytes.Buffer
	mux := http.NewServeMux()
	type answer struct{ Body []string }
	huma.Get(humago.New(mux, huma.DefaultConfig("test", "1")), "/", func(context.Context, *struct{}) (*answer, error) {
		return &answer{Body: []string{strings.Repeat("x", 64<<20)}}, nil // more than the buffers of a connection hold
	})
	served := Options{Logger: slog.New(slog.DiscardHandler), Access: slog.New(slog.NewTextHandler(&requests, nil))}.Wrap(mux)
	ended := make(chan struct{})
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		served.ServeHTTP(w, r)
	}))
	srv.Config.ErrorLog = log.New(&complaints, "", 0)
	srv.Start()
	defer srv.Close()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if status, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(status, "200") {
		t.Errorf("status %q, %v, want 200", status, err)
	}
	conn.Close()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the answer does not end")
	}
	if complaints.Len() > 0 {
		t.Errorf("net/http logs %s", complaints.String())
	}
	if !strings.Contains(requests.String(), "status=499") {
		t.Errorf("the request is logged as %s, want status 499", requests.String())
	}
}
