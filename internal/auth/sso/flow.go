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

// flow is a sign-in under way. It is in a cookie of the browser that began, encrypted: the
// server keeps nothing of it, so that strangers who begin many push nobody's out.
type flow struct {
	Provider, Nonce, Verifier string
	Redirect                  string // of whoever began
	State                     []byte // likewise, any text
	// Challenge is of a program that gets a code instead of tokens; "" for a page.
	Challenge string
	// Key is the state that the provider gives back.
	Key  string
	Ends time.Time
}

// newSeal returns what encrypts with a new key.
func newSeal() (cipher.AEAD, error) {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails: crypto/rand aborts the program instead
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// sealFlow returns what a cookie has of a flow.
func (s *SignIn) sealFlow(f flow) (string, error) {
	var plain bytes.Buffer
	e := json.NewEncoder(&plain)
	e.SetEscapeHTML(false) // a redirect has many &, and a browser takes cookies of 4 KiB
	if err := e.Encode(f); err != nil {
		return "", fmt.Errorf("encode flow: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(s.seal.Seal(nil, nil, plain.Bytes(), nil)), nil
}

// resume returns the flow that the request's browser began with the state. Each can be had
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
		return flow{}, errors.New("the sign-in took too long")
	}
	if _, isNew := s.used.SetIfAbsent(f.Key, struct{}{}); !isNew {
		return flow{}, errors.New("the sign-in was used")
	}
	return f, nil
}
