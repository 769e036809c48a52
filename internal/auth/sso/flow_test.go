package sso

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// TestStrangersPushNoFlowOut begins many sign-ins as strangers while somebody, whose sign-in has
// the largest permitted parameters, is at the provider.
func TestStrangersPushNoFlowOut(t *testing.T) {
	s, err := New([]Provider{{Name: "acme", Type: "github", ClientID: "1"}}, nil, nil, "http://box.example.com", "")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	begin := func(query url.Values) *http.Response {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", "/auth/sso/acme?"+query.Encode(), nil)
		r.SetPathValue("provider", "acme")
		if err := s.Begin(w, r); err != nil {
			t.Fatalf("begin: %v", err)
		}
		return w.Result()
	}
	redirect, state := "/app?"+strings.Repeat("a=b&", 250), strings.Repeat("\x01", 256)
	mine := begin(url.Values{"redirect": {redirect}, "state": {state}})
	cookie := mine.Cookies()[0]
	if text := cookie.String(); len(text) > 4096 {
		t.Errorf("the cookie has %d bytes, more than a browser takes", len(text))
	}
	for range 20_000 {
		begin(nil)
	}
	at, err := mine.Location()
	if err != nil {
		t.Fatal(err)
	}
	back := func() (flow, error) {
		r := httptest.NewRequest("GET", "/auth/sso/acme/callback", nil)
		r.SetPathValue("provider", "acme")
		r.AddCookie(cookie)
		return s.resume(r, at.Query().Get("state"))
	}
	f, err := back()
	if err != nil || f.Redirect != redirect || string(f.State) != state {
		t.Errorf("the way back: redirect %q, state %q, %v", f.Redirect, f.State, err)
	}
	if _, err := back(); err == nil {
		t.Error("the way back can be gone twice")
	}
}
