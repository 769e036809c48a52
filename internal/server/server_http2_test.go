package server

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/modbox/modbox/internal/conns"
)

// selfSigned writes a certificate and its key.
func selfSigned(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	privateDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", privateDER)
}

// http2Server serves with TLS as the server does. Requests to /slow are counted and wait for the
// end of the test.
type http2Server struct {
	t       *testing.T
	address string
	slow    atomic.Int32 // handlers of /slow that have begun
}

func newHTTP2Server(t *testing.T) *http2Server {
	t.Helper()
	s := &http2Server{t: t}
	release := make(chan struct{})
	clients := conns.New(conns.Limits{Max: 100, PerAddress: 100, PerUser: 100}, nil)
	srv := httpServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			s.slow.Add(1)
			<-release
		}
	}), clients, slog.New(slog.DiscardHandler))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cert, key := selfSigned(t)
	served := make(chan error, 1)
	go func() { served <- srv.ServeTLS(clients.Listen(l), cert, key) }()
	t.Cleanup(func() {
		close(release)
		_ = srv.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
	})
	s.address = l.Addr().String()
	return s
}

// dial opens an HTTP/2 connection and returns its framer, and a channel with the code that ends it:
// the code of GOAWAY, CANCEL when the server just closes it, or NO_ERROR when it answers a ping,
// and so has processed everything sent before.
func (s *http2Server) dial() (*http2.Framer, <-chan http2.ErrCode) {
	s.t.Helper()
	c, err := tls.Dial("tcp", s.address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	if p := c.ConnectionState().NegotiatedProtocol; p != "h2" {
		s.t.Fatalf("the server speaks %q, not h2", p)
	}
	if _, err := c.Write([]byte(http2.ClientPreface)); err != nil {
		s.t.Fatal(err)
	}
	framer := http2.NewFramer(c, c)
	if err := framer.WriteSettings(); err != nil {
		s.t.Fatal(err)
	}
	ended := make(chan http2.ErrCode, 1)
	go func() {
		for {
			f, err := framer.ReadFrame()
			if err != nil {
				ended <- http2.ErrCodeCancel
				return
			}
			switch f := f.(type) {
			case *http2.GoAwayFrame:
				ended <- f.ErrCode
				return
			case *http2.PingFrame:
				if f.IsAck() {
					ended <- http2.ErrCodeNo
					return
				}
			}
		}
	}()
	return framer, ended
}

// answers asserts that another client is served.
func (s *http2Server) answers() {
	s.t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get("https://" + s.address + "/")
	if err != nil {
		s.t.Fatalf("another client: %v", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.ProtoMajor != 2 {
		s.t.Errorf("another client: %s by HTTP/%d", resp.Status, resp.ProtoMajor)
	}
}

// headers encodes the header fields of a request to /slow, and more.
func headers(e *hpack.Encoder, b *bytes.Buffer, more ...hpack.HeaderField) []byte {
	b.Reset()
	for _, f := range append([]hpack.HeaderField{
		{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: "x"}, {Name: ":path", Value: "/slow"},
	}, more...) {
		_ = e.WriteField(f) // to memory
	}
	return b.Bytes()
}

// A client that sends header fields without end is cut off early, at no cost.
func TestHTTP2ContinuationFloodIsBounded(t *testing.T) {
	const budget = 256 << 20 // far more than socket buffers hold
	s := newHTTP2Server(t)
	framer, ended := s.dial()
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: headers(e, &b), EndStream: true}); err != nil {
		t.Fatal(err)
	}
	b.Reset()
	_ = e.WriteField(hpack.HeaderField{Name: "x", Value: strings.Repeat("~", 8<<10), Sensitive: true}) // to memory
	sent := 0
	for sent < budget && framer.WriteContinuation(1, false, b.Bytes()) == nil {
		sent += b.Len()
	}
	if sent >= budget {
		t.Fatalf("the server took %d bytes of headers of one request", sent)
	}
	<-ended
	if n := s.slow.Load(); n != 0 {
		t.Errorf("%d requests were served", n)
	}
	s.answers()
}

// A client that begins requests and resets them at once cannot have more requests in progress than
// others, and gets ENHANCE_YOUR_CALM.
func TestHTTP2RapidResetsAreBounded(t *testing.T) {
	const budget = 100_000
	s := newHTTP2Server(t)
	framer, ended := s.dial()
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for sent := range budget {
		id := uint32(2*sent + 1)
		if framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: headers(e, &b), EndStream: true, EndHeaders: true}) != nil ||
			framer.WriteRSTStream(id, http2.ErrCodeCancel) != nil {
			break
		}
	}
	_ = framer.WritePing(false, [8]byte{}) // fails when the connection is closed already
	if code := <-ended; code != http2.ErrCodeEnhanceYourCalm && code != http2.ErrCodeCancel {
		t.Errorf("the server ends the connection with %v, want %v", code, http2.ErrCodeEnhanceYourCalm)
	}
	s.answers()
	if n := s.slow.Load(); n == 0 || n > maxStreams {
		t.Errorf("%d requests were served at once, want 1 to %d", n, maxStreams)
	}
}
