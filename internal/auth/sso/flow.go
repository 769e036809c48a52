package sso

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// flow is a sign-in in progress. It is stored encrypted in a cookie of the browser that began it.
// The server stores nothing, so that strangers who begin many sign-ins cannot evict anybody's.
type flow struct {
	Provider, Nonce, Verifier string
	Redirect                  string // given by the page or program that began
	State                     []byte // likewise; any text
	// Challenge is set for a program, which gets a code instead of tokens; "" for a page.
	Challenge string
	// Key is the state parameter that the provider returns.
	Key  string
	Ends time.Time
}

// newSeal returns a cipher with a new key.
func newSeal() (cipher.AEAD, error) {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails: crypto/rand aborts the program instead
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// sealFlow returns the encrypted cookie value of a flow.
func (s *SignIn) sealFlow(f flow) (string, error) {
	var plain bytes.Buffer
	e := json.NewEncoder(&plain)
	e.SetEscapeHTML(false) // redirects contain many &, and browsers limit cookies to 4 KiB
	if err := e.Encode(f); err != nil {
		return "", fmt.Errorf("encode flow: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(s.seal.Seal(nil, nil, plain.Bytes(), nil)), nil
}

// resume returns the flow that the request's browser began with the state. Each flow can be resumed
// once.
func (s *SignIn) resume(r *http.Request, state string) (flow, error) {
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return flow{}, err
	}
	sealed, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	if err != nil {
		return flow{}, fmt.Errorf("decode cookie: %w", err)
	}
	plain, err := s.seal.Open(nil, nil, sealed, nil)
	if err != nil {
		return flow{}, fmt.Errorf("decrypt cookie: %w", err)
	}
	var f flow
	if err := json.Unmarshal(plain, &f); err != nil {
		return flow{}, fmt.Errorf("decode flow: %w", err)
	}
	if subtle.ConstantTimeCompare([]byte(f.Key), []byte(state)) != 1 || f.Provider != r.PathValue("provider") {
		return flow{}, errors.New("the browser began another sign-in")
	}
	if time.Now().After(f.Ends) {
		return flow{}, errors.New("the sign-in has expired")
	}
	if isNew := s.used.Add(f.Key, struct{}{}); !isNew {
		return flow{}, errors.New("the sign-in was completed before")
	}
	return f, nil
}
