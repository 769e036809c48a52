package account

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
)

const (
	// browserTime is the time limit of a sign-in in a browser, the same as the server's.
	browserTime = 10 * time.Minute
	// farewellTime is the time that the browser has to read its last page.
	farewellTime = 2 * time.Second
)

// loginThrough creates a session through another service.
func loginThrough(ctx context.Context, env *base.Env, anonymous *client.Client, o loginOptions) (base.Login, error) {
	verifier := rand.Text() + rand.Text()
	code, err := "", error(nil)
	if !o.noBrowser && env.HasBrowser() {
		code, err = codeFromBrowser(ctx, env, anonymous, o.provider, verifier)
	} else {
		fmt.Fprintf(env.Stderr, "Open this page in a browser, on any machine, and sign in:\n\n  %s\n\n", anonymous.Account.SignInURL(o.provider, "", "", verifier))
		code, err = env.Ask("The code it shows: ")
	}
	if err != nil {
		return base.Login{}, err
	}
	s, err := anonymous.Account.Exchange(ctx, code, verifier)
	if err != nil {
		return base.Login{}, err
	}
	return base.SessionLogin(s), nil
}

// codeFromBrowser opens a browser and waits for it to come back with a code.
func codeFromBrowser(ctx context.Context, env *base.Env, anonymous *client.Client, provider, verifier string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, browserTime, errors.New("nobody has signed in within ten minutes"))
	defer cancel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("wait for the browser: %w", err)
	}
	state := rand.Text()
	answers := make(chan url.Values, 1)
	srv := &http.Server{Handler: browserAnswer(state, answers), ReadHeaderTimeout: farewellTime, MaxHeaderBytes: 16 << 10}
	go func() { _ = srv.Serve(l) }() // Shutdown ends it
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewellTime)
		defer cancel()
		_ = srv.Shutdown(ctx) // it does not wait longer for an open connection of the browser
	}()
	page := anonymous.Account.SignInURL(provider, "http://"+l.Addr().String()+"/callback", state, verifier)
	fmt.Fprintf(env.Stderr, "Sign in with %s in the browser. If none opens:\n\n  %s\n\n", provider, page)
	if err := env.Browse(page); err != nil {
		return "", fmt.Errorf("open a browser: %w; --no-browser does without", err)
	}
	select {
	case q := <-answers:
		if code := q.Get("error"); code != "" {
			return "", &client.Error{Code: client.Code(code), Message: q.Get("error_description")}
		}
		return q.Get("code"), nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// browserAnswer accepts the first answer that carries the state. Other pages that the user has open
// may guess the port, but not the state.
func browserAnswer(state string, answers chan<- url.Values) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /callback", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if subtle.ConstantTimeCompare([]byte(q.Get("state")), []byte(state)) != 1 {
			http.Error(w, "This is not the sign-in that was begun.", http.StatusBadRequest)
			return
		}
		text := "You are signed in. This page can be closed."
		if q.Get("error") != "" {
			text = q.Get("error_description")
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'")
		w.Header().Set("Connection", "close")
		_, _ = io.WriteString(w, "<!doctype html><title>Modbox</title><p>"+html.EscapeString(text)+"</p>\n")
		select {
		case answers <- q:
		default: // the page was reloaded
		}
	})
	return mux
}
