package e2b_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/dialect/e2b"
)

// TestDecodeThenGone has a client whose body has no length, as the bodies of E2B's clients, and that goes away while
// the server works on its request: the request must end.
func TestDecodeThenGone(t *testing.T) {
	decoded, ended := make(chan error, 1), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := e2b.Decode[struct{}](w, r)
		decoded <- err
		<-r.Context().Done()
		close(ended)
	}))
	defer server.Close()
	ctx, leave := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, io.MultiReader(strings.NewReader(`{"timeout":1}`)))
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := http.DefaultClient.Do(r) //nolint:bodyclose // there is no answer
		answered <- err
	}()
	if err := <-decoded; err != nil {
		t.Errorf("Decode = %v", err)
	}
	leave()
	<-ended
	if err := <-answered; err == nil {
		t.Error("the request was answered")
	}
}
