package sso

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// Concurrent sign-ins must not wait for each other while the issuer hangs.
func TestWaitingForTheIssuerEnds(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(asked)
		<-answer
		http.Error(w, "away", http.StatusServiceUnavailable)
	}))
	defer issuer.Close()
	release := sync.OnceFunc(func() { close(answer) })
	defer release()
	p := oidcProvider(Provider{Name: "acme", Issuer: issuer.URL, ClientID: "x"}, "http://127.0.0.1/callback")
	first := make(chan error, 1)
	go func() {
		_, err := p.config(t.Context())
		first <- err
	}()
	<-asked
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	second := make(chan error, 1)
	go func() {
		_, err := p.config(ctx)
		second <- err
	}()
	select {
	case err := <-second:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the second that asks: %v, want that it was canceled", err)
		}
	case err := <-first:
		t.Fatalf("the first, whose issuer hangs: %v", err)
	}
	release()
	if err := <-first; err == nil {
		t.Error("an issuer that is away was found")
	}
}
