package ssotest

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// issuer is the state of the process.
type issuer struct {
	url        string
	key, other *rsa.PrivateKey // the published key, and an unpublished one

	mu     sync.Mutex
	grants map[string]url.Values // the authorization request of each code; guarded by mu
	fault  Fault                 // guarded by mu
}

// serve runs the process: it prints its URL and serves until stdin ends.
func serve() error {
	i := &issuer{grants: map[string]url.Values{}}
	for _, key := range []**rsa.PrivateKey{&i.key, &i.other} {
		var err error
		if *key, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
			return err
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	i.url = "http://" + l.Addr().String()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // the test holds the other end, which closes however the test ends
		_ = l.Close()
	}()
	fmt.Println(i.url)
	_ = http.Serve(l, i.routes()) // until stdin has ended
	return nil
}

func (i *issuer) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{
			"issuer": i.url, "authorization_endpoint": i.url + "/authorize", "token_endpoint": i.url + "/token",
			"jwks_uri": i.url + "/keys", "id_token_signing_alg_values_supported": []string{"RS256"},
		})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: i.key.Public(), KeyID: "k", Algorithm: "RS256", Use: "sig"}}})
	})
	for _, path := range []string{"GET /authorize", "GET /login/oauth/authorize"} {
		mux.HandleFunc(path, i.authorize)
	}
	for _, path := range []string{"POST /token", "POST /login/oauth/access_token"} {
		mux.HandleFunc(path, i.token)
	}
	mux.HandleFunc("GET /api/v3/user", func(w http.ResponseWriter, _ *http.Request) { answer(w, map[string]any{"id": 42, "login": "octo"}) })
	mux.HandleFunc("GET /api/v3/user/emails", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, []map[string]any{
			{"email": "other@example.com", "primary": false, "verified": true},
			{"email": "octo@example.com", "primary": true, "verified": true},
		})
	})
	mux.HandleFunc("PUT /fault", func(w http.ResponseWriter, r *http.Request) {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.fault = Fault{}
		if err := json.NewDecoder(r.Body).Decode(&i.fault); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	})
	return mux
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func (i *issuer) authorize(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	q := r.URL.Query()
	code := rand.Text()
	i.grants[code] = q
	back := url.Values{"code": {code}, "state": {q.Get("state")}}
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
}

// token returns the tokens for a code, if client and verifier are right.
func (i *issuer) token(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	grant, ok := i.grants[r.FormValue("code")]
	delete(i.grants, r.FormValue("code"))
	sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	id, secret, basic := r.BasicAuth()
	if !basic {
		id, secret = r.FormValue("client_id"), r.FormValue("client_secret")
	}
	if !ok || id != clientID || secret != clientSecret || base64.RawURLEncoding.EncodeToString(sum[:]) != grant.Get("code_challenge") {
		http.Error(w, `{"error":"invalid_grant"}`, http.StatusBadRequest)
		return
	}
	text, err := i.identity(grant.Get("nonce"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, map[string]any{"access_token": "at", "token_type": "Bearer", "id_token": text})
}

// identity returns an identity token, with the faults that the test asked for.
//
// Preconditions: i.mu is held.
func (i *issuer) identity(nonce string) (string, error) {
	now := time.Now()
	claims := map[string]any{
		"iss": i.url, "aud": clientID, "sub": "subject-1", "nonce": nonce, "iat": now.Unix(),
		"exp": now.Add(time.Minute).Unix(), "email": "Ada@Example.com", "email_verified": true,
	}
	maps.Copy(claims, i.fault.Claims)
	for _, name := range i.fault.Without {
		delete(claims, name)
	}
	key := i.key
	if i.fault.OtherKey {
		key = i.other
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: key}, (&jose.SignerOptions{}).WithHeader("kid", "k"))
	if err != nil {
		return "", err
	}
	return jwt.Signed(signer).Claims(claims).Serialize()
}
