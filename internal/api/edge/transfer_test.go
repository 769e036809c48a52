package edge_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modbox/modbox/internal/access"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/sandbox"
)

// pipes is a listener whose connections are in memory, so that their time is the test's.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// dialled serves h to one client and returns the client's end.
func dialled(t *testing.T, h http.Handler) net.Conn {
	t.Helper()
	l := make(pipes, 1)
	s := &http.Server{Handler: edge.Wrap(slog.New(slog.DiscardHandler), h)}
	go s.Serve(l)
	client, server := net.Pipe()
	l <- server
	t.Cleanup(func() {
		client.Close()
		s.Close()
	})
	return client
}

// signedIn marks a request as authenticated.
func signedIn(r *http.Request) { _ = access.FromContext(r.Context()).SignIn() }

// TestErrorArrivesAfterALongBody: a signed-in client that sends all of its body before
// it reads gets the error with which the server answered at the body's beginning.
func TestErrorArrivesAfterALongBody(t *testing.T) {
	s := httptest.NewServer(edge.Wrap(slog.New(slog.DiscardHandler), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		signedIn(r)
		edge.Error(w, r, sandbox.Errorf(sandbox.Unavailable, "no space"))
	})))
	defer s.Close()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const size = 64 << 20
	fmt.Fprintf(conn, "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", size)
	// More than the buffers of a connection hold, and the server reads nothing at first.
	part := make([]byte, 1<<20)
	for sent := 0; sent < size; sent += len(part) {
		if _, err := conn.Write(part); err != nil {
			t.Fatalf("after %d MiB: %v", sent>>20, err)
		}
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(body), "no space") {
		t.Errorf("answer: %s %q, %v; want 503 no space", resp.Status, body, err)
	}
}

// TestBodiesThatNeverArrive: an answer waits for no body of an anonymous client, and not long for a
// body of a signed-in client.
func TestBodiesThatNeverArrive(t *testing.T) {
	for name, c := range map[string]struct {
		known bool
		head  string
		want  time.Duration
	}{
		"stranger":         {false, "Content-Length: 10\r\n\r\n", 0},
		"stranger_chunked": {false, "Transfer-Encoding: chunked\r\n\r\n", 0},
		"stranger_partial": {false, "Content-Length: 10\r\n\r\n12345", 0},
		"known":            {true, "Content-Length: 10\r\n\r\n", 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn := dialled(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if c.known {
						signedIn(r)
					}
					edge.Error(w, r, sandbox.Errorf(sandbox.NotFound, "no"))
				}))
				begun := time.Now()
				fmt.Fprint(conn, "PUT / HTTP/1.1\r\nHost: x\r\n"+c.head)
				resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begun); resp.StatusCode != 404 || took != c.want {
					t.Errorf("answer %d after %s, want 404 after %s", resp.StatusCode, took, c.want)
				}
			})
		})
	}
}

// TestStreamedBodiesMustGoOn: a body may take any time as long as it grows.
func TestStreamedBodiesMustGoOn(t *testing.T) {
	for name, c := range map[string]struct {
		pause, rest time.Duration
		want        int64 // bytes that are read
		code        sandbox.Code
	}{
		"slow":    {59 * time.Second, 0, 20, ""},
		"stalls":  {61 * time.Second, 0, 1, sandbox.Timeout},
		"patient": {61 * time.Second, time.Hour, 20, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got int64
				var failed error
				conn := dialled(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					signedIn(r)
					if c.rest > 0 {
						access.FromContext(r.Context()).LetBodyRest(c.rest)
					}
					got, failed = io.Copy(io.Discard, r.Body)
				}))
				var sender sync.WaitGroup
				defer sender.Wait()
				sender.Go(func() {
					fmt.Fprint(conn, "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n\r\n")
					for range 20 {
						if _, err := conn.Write([]byte("x")); err != nil {
							return
						}
						time.Sleep(c.pause)
					}
				})
				if _, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil {
					t.Fatal(err)
				}
				if got != c.want || sandbox.CodeOf(failed) != c.code {
					t.Errorf("%d bytes were read, then %v; want %d, then code %q", got, failed, c.want, c.code)
				}
			})
		})
	}
}

// TestAnswersMustBeTaken: a client may take any time for an answer as long as it takes some.
func TestAnswersMustBeTaken(t *testing.T) {
	const size = 1 << 20
	for name, c := range map[string]struct {
		pause time.Duration
		whole bool
	}{
		"slow":   {50 * time.Second, true},
		"stalls": {70 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				wrote := make(chan error, 1)
				conn := dialled(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					_, err := w.Write(make([]byte, size))
					wrote <- err
				}))
				fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
				in := bufio.NewReaderSize(conn, 64<<10)
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatal(err)
				}
				for buf := make([]byte, 64<<10); err == nil; time.Sleep(c.pause) {
					_, err = io.ReadFull(resp.Body, buf)
				}
				err = <-wrote
				if whole := err == nil; whole != c.whole {
					t.Errorf("the handler's write ended with %v, want success %v", err, c.whole)
				}
			})
		})
	}
}

// TestSilenceIsNoFault: streams may say nothing for hours, on HTTP/1 and HTTP/2.
func TestSilenceIsNoFault(t *testing.T) {
	for name, http2 := range map[string]bool{"http1": false, "http2": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var protocols http.Protocols
				protocols.SetHTTP1(!http2)
				protocols.SetUnencryptedHTTP2(http2)
				l := make(pipes, 1)
				s := &http.Server{Protocols: &protocols, Handler: edge.Wrap(slog.New(slog.DiscardHandler), http.HandlerFunc(ticks))}
				go s.Serve(l)
				defer s.Close()
				transport := &http.Transport{Protocols: &protocols, DialContext: func(context.Context, string, string) (net.Conn, error) {
					client, server := net.Pipe()
					l <- server
					return client, nil
				}}
				defer transport.CloseIdleConnections()
				resp, err := (&http.Client{Transport: transport}).Post("http://x/", "text/plain", strings.NewReader("x"))
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				if b, err := io.ReadAll(resp.Body); err != nil || strings.Count(string(b), "tick") != 3 {
					t.Errorf("read %q, %v", b, err)
				}
			})
		})
	}
}

// ticks reads the body and says something every three hours.
func ticks(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	for range 3 {
		fmt.Fprintln(w, "tick")
		if err := http.NewResponseController(w).Flush(); err != nil {
			panic(err)
		}
		time.Sleep(3 * time.Hour)
	}
	if r.Context().Err() != nil {
		panic("the request was ended")
	}
}

// TestOwnDeadlines: a handler's own deadline stands instead of the edge's, until it is taken away.
func TestOwnDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var took time.Duration
		var failed error
		conn := dialled(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			begun := time.Now()
			body, done := edge.Body(w, r, 100)
			defer done()
			_, failed = io.ReadAll(body)
			took = time.Since(begun)
		}))
		var sender sync.WaitGroup
		defer sender.Wait()
		sender.Go(func() {
			fmt.Fprint(conn, "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n\r\n")
			for range 20 {
				if _, err := conn.Write([]byte("x")); err != nil {
					return
				}
				time.Sleep(20 * time.Second)
			}
		})
		if _, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil {
			t.Fatal(err)
		}
		var timeout net.Error
		if took != edge.BodyTime || !errors.As(failed, &timeout) || !timeout.Timeout() {
			t.Errorf("the body was given up after %s with %v, want %s", took, failed, edge.BodyTime)
		}
	})
}

// TestAnswerBeforeTheBodyEnds checks that a connection ends with the answer if this has begun before the end of a body that is read meanwhile: net/http cannot
// find the next request.
func TestAnswerBeforeTheBodyEnds(t *testing.T) {
	s := httptest.NewServer(edge.Wrap(slog.New(slog.DiscardHandler), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/plain" {
			_ = http.NewResponseController(w).EnableFullDuplex()
		}
		if r.URL.Path == "/read" {
			_, _ = io.ReadAll(r.Body)
		}
		_, _ = io.WriteString(w, "answer")
	})))
	defer s.Close()
	for path, closes := range map[string]bool{"/plain": false, "/read": false, "/unread": true} {
		resp, err := http.Post(s.URL+path, "text/plain", strings.NewReader("text"))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || string(body) != "answer" || resp.Close != closes {
			t.Errorf("%s: %q, %v, the connection ends: %v", path, body, err, resp.Close)
		}
	}
}
