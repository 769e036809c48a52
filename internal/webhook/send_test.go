package webhook

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

func TestSend(t *testing.T) {
	requests := make(chan *http.Request, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests <- r
		switch r.URL.Path {
		case "/redirect":
			http.Redirect(w, r, "/ok", http.StatusTemporaryRedirect)
		case "/endless":
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, strings.Repeat("a\x00\xff", 1000)); err != nil {
					return
				}
			}
		case "/header":
			for i := range 100 {
				w.Header().Set(fmt.Sprint("X-", i), strings.Repeat("a", 1000))
			}
		case "/500":
			http.Error(w, "no", http.StatusInternalServerError)
		}
	}))
	defer receiver.Close()
	s := newSender(loopback)
	defer s.close()
	at := time.Unix(1700000000, 0)
	for path, want := range map[string]struct {
		status      int
		err, answer string
	}{
		"/ok":       {status: 200},
		"/redirect": {307, "the receiver answered a redirect (307), which is not followed", ""},
		"/500":      {500, "the receiver answered 500", "no\n"},
		"/endless":  {status: 200},
		"/header":   {0, "the connection to the receiver failed", ""},
	} {
		got := s.send(t.Context(), receiver.URL+path, "msg_1", at, []string{"v1,a", "v1,b"}, []byte("{}"))
		if path == "/endless" {
			if len(got.response) > 3*responseMax || !strings.HasPrefix(got.response, "a\uFFFD\uFFFD") {
				t.Errorf("the response of a receiver whose answer does not end has %d bytes", len(got.response))
			}
			got.response = ""
		}
		if got.status != want.status || got.err != want.err || got.response != want.answer {
			t.Errorf("%s: %+v, want %+v", path, got, want)
		}
		r := <-requests
		if h := r.Header; r.Method != "POST" || h.Get("Webhook-Id") != "msg_1" || h.Get("Webhook-Timestamp") != "1700000000" || h.Get("Webhook-Signature") != "v1,a v1,b" || h.Get("Content-Type") != "application/json" {
			t.Errorf("%s: the receiver got %s %v", path, r.Method, r.Header)
		}
	}
	if len(requests) > 0 {
		t.Errorf("a redirect was followed to %s", (<-requests).URL)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := s.send(ctx, receiver.URL+"/ok", "msg_1", at, nil, nil); got.err == "" {
		t.Error("an attempt of a server that ends counts as delivered")
	}
}

func TestSendReachesOnlyPublicAddresses(t *testing.T) {
	received := false
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { received = true }))
	defer receiver.Close()
	s := newSender(nil)
	for _, url := range []string{receiver.URL, strings.Replace(receiver.URL, "127.0.0.1", "localhost", 1), "https://169.254.169.254/latest", "https://[::1]/", "https://10.0.0.1/"} {
		if got := s.send(t.Context(), url, "msg_1", time.Now(), nil, nil); got.err != errClosed.Error() {
			t.Errorf("%s: %+v, want that the address is closed", url, got)
		}
	}
	if received {
		t.Error("the server's own address received a delivery")
	}
	for _, c := range []struct {
		addr  string
		allow []netip.Prefix
		plain bool
		want  error
	}{
		{"127.0.0.1", loopback, true, nil},
		{"::ffff:127.0.0.1", loopback, true, nil},
		{"::ffff:127.0.0.1", nil, false, errClosed},
		{"169.254.169.254", []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}, false, errClosed},
		{"fd00:ec2::254", []netip.Prefix{netip.MustParsePrefix("::/0")}, false, errClosed},
		{"10.1.0.1", []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16")}, false, errClosed},
		{"64:ff9b::7f00:1", nil, false, errClosed},
		{"8.8.8.8", loopback, true, errPlain},
	} {
		if got := guard(c.allow).check(netip.MustParseAddr(c.addr), c.plain); got != c.want {
			t.Errorf("%s with %v open, http %t: %v, want %v", c.addr, c.allow, c.plain, got, c.want)
		}
	}
}

func TestAttempted(t *testing.T) {
	now := time.Unix(1700000000, 0).UTC()
	for name, c := range map[string]struct {
		r     result
		until time.Time
		want  Outcome
		state State
	}{
		"delivered": {result{status: 204}, now.Add(Window), Success, Delivered},
		"gone":      {result{status: 410, err: "e"}, now.Add(Window), Gone, Failed},
		"again":     {result{status: 500, err: "e"}, now.Add(Window), Retry, Pending},
		"over":      {result{err: "e"}, now.Add(time.Second), GaveUp, Failed},
	} {
		v := Delivery{State: Pending, RetryUntil: c.until}
		if o := v.attempted(c.r, now); o != c.want || v.State != c.state || v.Attempts != 1 || v.EndedAt.IsZero() != (c.state == Pending) {
			t.Errorf("%s: %s, %+v, want %s and %s", name, o, v, c.want, c.state)
		}
	}
}

func TestURLs(t *testing.T) {
	for url, plain := range map[string][2]bool{ // valid without and with http
		"https://a.example/x?y=z": {true, true}, "http://a.example": {false, true}, "ftp://a.example": {}, "https://": {}, "a.example": {},
		"https://u:p@a.example": {}, "https://a.example/#f": {}, "https://a.example/#": {}, "https://a.example/" + strings.Repeat("a", URLMax): {}, "https://a .example": {}, "https:a.example": {},
	} {
		for i, permitted := range []bool{false, true} {
			err := checkURL(url, permitted)
			if (err == nil) != plain[i] || err != nil && sandbox.CodeOf(err) != sandbox.Invalid {
				t.Errorf("%.40s with http %t: %v, want valid %t", url, permitted, err, plain[i])
			}
		}
	}
}
