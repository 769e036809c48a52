package egress_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/egress"
)

// TestNamesAsked connects over TLS and HTTP to an address that an allowed name leads to.
func TestNamesAsked(t *testing.T) {
	gw, g := restricted(t)
	gw.Restrict(only(t, "allowed.example", "*.allowed.example"))
	server := echoServer(t)
	g.resolve("allowed.example.")
	for _, tt := range []struct {
		begin string
		open  bool
	}{
		{string(hello(t, "allowed.example")), true},
		{string(hello(t, "www.allowed.example")), true},
		{string(hello(t, "evil.example")), false},
		{string(hello(t, "")), false},
		{"GET / HTTP/1.1\r\nHost: allowed.example:8080\r\n\r\n", true},
		{"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", false},
		{"\r\nGET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", false},
		{"GET /\r\nHost: evil.example\r\n\r\n", false},
		{"GET / RTSP/1.0\r\nHost: evil.example\r\n\r\n", false},
		{warning + string(hello(t, "evil.example")), false},
		{"GET http://evil.example/ HTTP/1.1\r\nHost: allowed.example\r\n\r\n", false},
		{"OPTIONS rtsp://allowed.example/ RTSP/1.0\r\nCSeq: 1\r\n\r\n", true},
		{"OPTIONS rtsp://evil.example/ RTSP/1.0\r\nCSeq: 1\r\n\r\n", false},
		{"CONNECT allowed.example:443 HTTP/1.0\r\n\r\n", true},
		{"CONNECT evil.example:443 HTTP/1.0\r\n\r\n", false},
		{"SSH-2.0-test\r\n", true},
		{"\x00\x00\x00\x08", true},
		{"\x15\x01\x00\x01\x85\xa6\xff\x01", true},
		{"\x16\x01\x00\x01\x85\xa6\xff\x01", true},
	} {
		before := gw.Usage().Denied
		c := g.mustDial(server)
		for part := range slices.Chunk([]byte(tt.begin), 100) {
			if _, err := c.Write(part); err != nil {
				break
			}
		}
		n, err := io.ReadFull(c, make([]byte, len(tt.begin)))
		if (err == nil) != tt.open {
			t.Errorf("%.80q: %d bytes, %v, want open: %t", tt.begin, n, err, tt.open)
		}
		if d := gw.Usage().Denied - before; (d == 1) == tt.open {
			t.Errorf("%.80q: %d flows denied, want open: %t", tt.begin, d, tt.open)
		}
		_ = c.Close()
	}
	first := serve(t, func(c *net.TCPConn) { _, _ = io.WriteString(c, "220 ready\r\n") })
	if line, err := bufio.NewReader(g.mustDial(first)).ReadString('\n'); err != nil || line != "220 ready\r\n" {
		t.Errorf("a server that speaks first: %q, %v", line, err)
	}
	c := g.mustDial(server)
	for _, part := range []string{"hello", " you", "there\n"} { // waits for each
		if err := exchange(c, part); err != nil {
			t.Errorf("text in parts, %q: %v", part, err)
		}
	}
	for _, parts := range [][2]string{
		{"GET / HTTP/1.1\r", "\nHost: evil.example\r\n\r\n"},
		{strings.Repeat("A", 65), " / HTTP/1.1\r\nHost: evil.example\r\n\r\n"},
	} {
		c := g.mustDial(server)
		if err := exchange(c, parts[0]); err != nil {
			t.Errorf("%q, the beginning of a line: %v", parts[0], err)
		}
		if err := exchange(c, parts[1]); err == nil {
			t.Errorf("%q: a request for a name that is not allowed passes in parts", parts)
		}
	}
	c = g.mustDial(server)
	for _, part := range []string{gitRequest, "0014command=ls-refs\n"} {
		if err := exchange(c, part); err != nil {
			t.Errorf("a client of Git, %q: %v", part, err)
		}
	}
	gw.Restrict(only(t, "203.0.113.1"))
	if err := exchange(g.mustDial(server), string(hello(t, "evil.example"))); err != nil {
		t.Errorf("TLS for any name to an allowed address: %v", err)
	}
}

// hello returns the first message of a TLS client that asks for a name.
func hello(tb testing.TB, name string) []byte {
	tb.Helper()
	ours, theirs := net.Pipe()
	defer ours.Close()
	go func() {
		defer theirs.Close()
		_ = tls.Client(theirs, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake() // it only sends its hello
	}()
	header := make([]byte, 5)
	if _, err := io.ReadFull(ours, header); err != nil {
		tb.Fatal(err)
	}
	body := make([]byte, int(header[3])<<8|int(header[4]))
	if _, err := io.ReadFull(ours, body); err != nil {
		tb.Fatal(err)
	}
	return append(header, body...)
}

// gitRequest is the first packet of a client in the protocol of Git.
const gitRequest = "003bgit-upload-pack /p.git\x00host=allowed.example\x00\x00version=2\x00"

// warning is a record of TLS with a warning, which some servers ignore before the hello.
const warning = "\x15\x03\x01\x00\x02\x01\x00"

// inRecords splits the message of a record into records of n bytes.
func inRecords(record []byte, n int) []byte {
	var out []byte
	for part := range slices.Chunk(record[5:], n) {
		out = append(out, 22, 3, 1, byte(len(part)>>8), byte(len(part)))
		out = append(out, part...)
	}
	return out
}

func TestAskedNames(t *testing.T) {
	h := hello(t, "www.example.com")
	const short, wrong = "short", "wrong"
	for _, tt := range []struct {
		begin string
		port  uint16
		want  []string
		err   string
	}{
		{string(h), 443, []string{"www.example.com"}, ""},
		{string(h), 8443, []string{"www.example.com"}, ""},
		{string(h) + "more", 443, []string{"www.example.com"}, ""},
		{string(inRecords(h, 7)), 443, []string{"www.example.com"}, ""},
		{string(h[:len(h)-1]), 443, nil, short},
		{string(inRecords(h, 7)[:300]), 443, nil, short},
		{string(inRecords(h, 1)[:6*511]), 443, nil, short},
		{string(inRecords(h, 1)[:6*513]), 443, nil, wrong},
		{"\x16", 443, nil, short},
		{"", 443, nil, short},
		{string(hello(t, "")), 443, nil, wrong},
		{string(hello(t, "")), 9999, nil, wrong},
		{"\x16\x03\x01\x00\x00", 443, nil, wrong},
		{"\x16\x03\x01\x00\x04\x02\x00\x00\x00", 443, nil, wrong},
		{"\x16\x02\x01", 443, nil, wrong},
		{"\x16\x02\x01", 8443, nil, short},
		{"\x16\x03\x01\x00\x00\x16", 8443, nil, wrong},
		{"\x15\x01\x00\x01\x85\xa6", 443, nil, wrong},
		{"\x16\x01\x00\x01\x85\xa6", 443, nil, wrong},
		{"\x15\x01\x00\x01\x85\xa6", 3306, nil, ""}, // responses of MySQL
		{"\x16\x01\x00\x01\x85\xa6", 3306, nil, ""},
		{"\x16\x01\x00\x01\x85", 3306, nil, short},
		{"\x15\x01\x00\x00\x07\x00\x00\x00", 27017, nil, ""}, // hellos of MongoDB
		{"\x15\x01\x00\x00\x02\x00\x00\x00", 27017, nil, ""},
		{"\x16\x01\x00\x00\x00\x00\x00\x00", 27017, nil, ""},
		{"\x16\x00\xf3\x05\x0fallowed.example", 25565, nil, ""}, // Minecraft
		{"\x15\x03\x01\x00\x04\x01\x00\x01\x00" + string(h), 8443, nil, wrong},
		{"\x15\x03\x01\x00\x01\x01\x15\x03\x01\x00\x01\x00" + string(h), 8443, nil, wrong},
		{"\x15\x03\x01\x00\x00" + string(h), 8443, nil, wrong},
		{"\x16\x03\x01\x00\x00" + string(h), 8443, nil, wrong},
		{"\x16\x01\x01" + string(h[3:]), 8443, nil, wrong},
		{warning + string(h), 8443, nil, wrong},
		{"\x15", 8443, nil, short},
		{"\x16\x10", 9999, nil, ""},
		{"\x80\x2e\x01\x03\x03", 8443, nil, wrong},
		{"\x80\x2e\x01", 8443, nil, short},
		{"\x80", 8443, nil, short},
		{"\x80\x2e\x01\x00", 9999, nil, ""},
		{"\x80\x2e\x02", 9999, nil, ""},
		{"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n", 443, nil, wrong},
		{"SSH-2.0-x\r\n", 443, nil, wrong},
		{"SSH-2.0-x\r\n", 80, nil, wrong},
		{"SSH-2.0-x\r\n", 22, nil, ""},
		{"SSH-2.0-x y\r\n", 22, nil, ""},
		{"EHLO a.example\r\n", 25, nil, ""},
		{"\x00\x01", 25, nil, ""},
		{"\x00\x01", 80, nil, wrong},
		{strings.Repeat("a", 65), 25, nil, short},
		{strings.Repeat("a", 64) + "/", 25, nil, ""},
		{strings.Repeat("a", 63) + "/", 25, nil, short},
		{strings.Repeat("a", 30<<10) + "/", 25, nil, short},
		{strings.Repeat("A", 65) + " / HTTP/1.1\r\nHost: a.example\r\n\r\n", 8080, []string{"a.example"}, ""},
		{"GET / HTTP/1.1\r\nHost: a.example:80\r\n\r\n", 80, []string{"a.example"}, ""},
		{"GET / HTTP/1.1\nhOsT:a.example\n\n", 8080, []string{"a.example"}, ""},
		{"GET\t/\tHTTP/1.1\r\nHost: a.example\r\n\r\n", 8080, []string{"a.example"}, ""},
		{"get / HTTP/1.1\r\nHost: a.example\r\n\r\n", 8080, []string{"a.example"}, ""},
		{"\r\n\nGET / HTTP/1.0\r\nHost: a.example\r\n\r\n", 8080, []string{"a.example"}, ""},
		{"GET /\xe9 HTTP/1.1\r\nHost: a.example\r\n\r\n", 8080, []string{"a.example"}, ""},
		{"GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", 80, []string{"::1"}, ""},
		{"GET / HTTP/1.1\r\nHost: a.example\r\n", 80, nil, short},
		{"GET / HTTP/1.1\r\nHost: a.exam", 80, nil, short},
		{"GET / HTTP/1.1\r\n", 80, nil, short},
		{"GET / HTT", 8080, nil, short},
		{"GET ", 8080, nil, short},
		{"GET / HTTP/1.1\r\n\r\n", 80, nil, wrong},
		{"GET / HTTP/1.1\r\n\r\n", 8080, nil, wrong},
		{"GET /\r\n", 80, nil, wrong},
		{"GET /\r\nHost: a.example\r\n\r\n", 8080, nil, wrong},
		{"GET http://a.example/\r\n\r\n", 8080, nil, wrong},
		{gitRequest, 9418, nil, short},
		{gitRequest + "0014command=ls-refs\n", 9418, nil, ""},
		{gitRequest + "0014command=ls-refs\n", 80, nil, wrong},
		{"GET / HTTP/2.0\r\nHost: a.example\r\n\r\n", 8080, []string{"a.example"}, ""},
		{"GET / http/1.1\r\nHost: a.example\r\n\r\n", 8080, []string{"a.example"}, ""},
		{"GET / RTSP/1.0\r\nHost: a.example\r\n\r\n", 8080, []string{"a.example"}, ""},
		{"SOURCE / ICE/1.0\r\nHost: a.example\r\n\r\n", 8080, []string{"a.example"}, ""},
		{"GET / HTTP/1.1 x\r\nHost: a.example\r\n\r\n", 8080, []string{"a.example"}, ""},
		{"GET\x1c/\x1cHTTP/1.1\r\nHost: a.example\r\n\r\n", 8080, []string{"a.example"}, ""},
		{"\x0cGET / HTT", 8080, nil, short},
		{strings.Repeat("\r\n", 512) + "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n", 80, []string{"a.example"}, ""},
		{strings.Repeat(" ", 1024), 8080, nil, short},
		{strings.Repeat(" ", 1025), 8080, nil, wrong},
		{strings.Repeat("\r\n", 513) + "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n", 80, nil, wrong},
		{"GET / HTTP/1.1\r\nHost : a.example\r\n\r\n", 80, nil, wrong},
		{"GET / HTTP/1.1\r\nHost: a.example\r\nhost: b.example\r\n\r\n", 80, nil, wrong},
		{"GET http://b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", 80, []string{"a.example", "b.example"}, ""},
		{"GET b.example HTTP/1.1\r\nHost: a.example\r\n\r\n", 80, nil, wrong},
		{"OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n", 80, []string{"a.example"}, ""},
		{"CONNECT b.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n", 8080, []string{"a.example", "b.example"}, ""},
		{"CONNECT b.example:443 HTTP/1.0\r\n\r\n", 8080, []string{"b.example"}, ""},
		{"CONNECT b.example:443 HTTP/1.0\r\nHost: a.example\r\nHost: c.example\r\n\r\n", 8080, nil, wrong},
		{"OPTIONS rtsp://u:p@a.example:554/s RTSP/1.0\r\nCSeq: 1\r\n\r\n", 554, []string{"a.example"}, ""},
		{"PLAY RTSP://a.example/s RTSP/1.0\r\nHost: b.example\r\n\r\n", 554, []string{"b.example", "a.example"}, ""},
		{"OPTIONS rtsp:///s RTSP/1.0\r\nCSeq: 1\r\n\r\n", 554, nil, wrong},
		{"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n", 554, nil, wrong},
		{"GET http://a.example/ HTTP/1.0\r\n\r\n", 8080, nil, wrong},
		{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 80, nil, wrong},
		{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 50051, nil, ""},
	} {
		got, err := egress.AskedNames([]byte(tt.begin), tt.port)
		kind := ""
		if errors.Is(err, egress.ErrShort) {
			kind = short
		} else if err != nil {
			kind = wrong
		}
		if kind != tt.err {
			t.Errorf("port %d, %.80q: error %v, want %q", tt.port, tt.begin, err, tt.err)
		}
		if diff := cmp.Diff(tt.want, got); err == nil && diff != "" {
			t.Errorf("port %d, %.80q (-want +got):\n%s", tt.port, tt.begin, diff)
		}
	}
}

// The names do not depend on the place where a read ends.
func TestAskedNamesInParts(t *testing.T) {
	for _, begin := range []string{
		string(hello(t, "www.example.com")),
		string(inRecords(hello(t, "www.example.com"), 7)),
		"GET / HTTP/1.1\r\nHost: a.example\r\nX-Long: b\r\n c\r\nAccept: */*\r\n\r\n",
		"GET / HTTP/1.1\nAccept: */*\nHost: a.example\n\n",
		"POST / RTSP/1.0\r\nHost: a.example\r\n\r\n",
		strings.Repeat("A", 65) + " / HTTP/1.1\r\nHost: a.example\r\n\r\n",
		" \n" + strings.Repeat("A", 1025) + " / HTTP/1.1\r\nHost: a.example\r\n\r\n",
		string(inRecords(hello(t, "www.example.com"), 300)),
	} {
		for _, port := range []uint16{80, 443, 8080} {
			if _, err := egress.AskedNames([]byte(begin), port); err != nil {
				if port != 443 {
					t.Errorf("port %d, %.80q: %v", port, begin, err)
				}
				continue
			}
			want, _ := egress.AskedNames([]byte(begin), port)
			for _, n := range []int{1, 2, 7, 1000} {
				if names, err := namesInParts([]byte(begin), port, n); err != nil || !slices.Equal(names, want) {
					t.Errorf("port %d, %.80q in parts of %d bytes: names %q, error %v, want %q", port, begin, n, names, err, want)
				}
			}
			for n := range len(begin) {
				if names, err := egress.AskedNames([]byte(begin[:n]), port); !errors.Is(err, egress.ErrShort) {
					t.Fatalf("port %d, %q: names %q, error %v, want that more must be read", port, begin[:n], names, err)
				}
			}
		}
	}
}

// The header of a request arrives in parts of a byte.
func TestHeaderInParts(t *testing.T) {
	for _, request := range []string{
		"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
		"GET / HTTP/1.1\nHost: a.example\n\n",
		"\n\r\nGET / HTTP/1.1\r\nHost: a.example\n\r\n",
	} {
		b := egress.NewBeginning(80)
		for i := range len(request) {
			names, err := b.Add([]byte{request[i]})
			if last := i == len(request)-1; last && (err != nil || !slices.Equal(names, []string{"a.example"})) || !last && !errors.Is(err, egress.ErrShort) {
				t.Fatalf("%q: names %q, error %v", request[:i+1], names, err)
			}
		}
	}
}

// A byte does not cost a reading of all that came before it.
func TestCostOfSmallParts(t *testing.T) {
	h := hello(t, "www.example.com")
	for _, begin := range []string{
		"GET /" + strings.Repeat("a ", 15<<10) + " HTTP/1.1\n",
		string(inRecords(h, 1)[:6*400]) + "\x16\x03\x01\x7f\xff",
	} {
		b := egress.NewBeginning(8080)
		if _, err := b.Add([]byte(begin)); !errors.Is(err, egress.ErrShort) {
			t.Fatalf("%.80q: error %v, want that more must be read", begin, err)
		}
		part := []byte("a")
		if n := testing.AllocsPerRun(100, func() { _, _ = b.Add(part) }); n != 0 {
			t.Errorf("%.80q: %v allocations for another byte", begin, n)
		}
	}
}

// FuzzAskedNames compares the names with the names that crypto/tls and net/http read.
func FuzzAskedNames(f *testing.F) {
	h := hello(f, "www.example.com")
	f.Add(h)
	f.Add(inRecords(h, 40))
	f.Add(append([]byte(warning), h...))
	f.Add(append([]byte("\x16\x01\x01"), h[3:]...))
	f.Add([]byte("GET / RTSP/1.0\r\nHost: a.example\r\n\r\n"))
	f.Add([]byte("GET /\r\nHost: a.example\r\n\r\n"))
	f.Add([]byte("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"))
	f.Add([]byte("GET http://b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n"))
	f.Add([]byte(strings.Repeat("A", 65) + " / HTTP/1.1\r\nHost: a.example\r\n\r\n"))
	f.Add([]byte("OPTIONS rtsp://a.example/ RTSP/1.0\r\n\r\n"))
	f.Add([]byte("\x16\x03\x01\x00\x04\x00\x00\x00\x00" + strings.Repeat("more", 1000)))
	f.Add([]byte(gitRequest + "0014command=ls-refs\n"))
	f.Fuzz(func(t *testing.T, begin []byte) {
		for _, port := range []uint16{443, 80, 8080} {
			for _, n := range []int{1, max(1, len(begin))} {
				names, err := namesInParts(begin, port, n)
				if err != nil {
					continue
				}
				if got, ok := serverNameOf(begin); ok && !slices.Contains(names, got) {
					t.Fatalf("port %d: names %q; a TLS server reads %q in %q", port, names, got, begin)
				}
				if got, ok := hostOf(begin); ok && !slices.Contains(names, got) {
					t.Fatalf("port %d: names %q; an HTTP server reads %q in %q", port, names, got, begin)
				}
			}
		}
	})
}

// namesInParts returns the names of a beginning that arrives in parts of n bytes.
func namesInParts(begin []byte, port uint16, n int) (names []string, err error) {
	b := egress.NewBeginning(port)
	for part := range slices.Chunk(begin, n) {
		if names, err = b.Add(part); !errors.Is(err, egress.ErrShort) {
			break
		}
	}
	return names, err
}

// hostOf returns the host that net/http reads in a request of HTTP/1.
func hostOf(begin []byte) (host string, ok bool) {
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(strings.TrimLeft(string(begin), "\r\n"))))
	if err != nil || r.ProtoMajor != 1 || r.Host == "" {
		return "", false
	}
	if name, _, err := net.SplitHostPort(r.Host); err == nil {
		return name, true
	}
	return r.Host, true
}

// serverNameOf returns the name that crypto/tls reads in a hello.
func serverNameOf(begin []byte) (name string, ok bool) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	go func() { _, _ = io.Copy(io.Discard, ours) }() // the server's alert, for which it does not read on
	go func() {
		_, _ = ours.Write(begin)
		_ = ours.Close()
	}()
	_ = tls.Server(theirs, &tls.Config{GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
		name, ok = info.ServerName, true
		return nil, errors.New("seen")
	}}).Handshake()
	return name, ok
}
