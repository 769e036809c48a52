package sso

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/modbox/modbox/internal/auth"
)

// answerMax bounds an answer of a provider.
const answerMax = 1 << 20

// boundedTransport limits the size of answers.
type boundedTransport struct{}

func (boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, answerMax), resp.Body}
	}
	return resp, err
}

// bounded returns a context whose requests to a provider are limited in time and size.
func bounded(ctx context.Context) context.Context {
	return oidc.ClientContext(ctx, &http.Client{Transport: boundedTransport{}, Timeout: talkTime})
}

// oidcProvider fetches the issuer's addresses and keys at the first use, so that the server can
// start while the issuer is unreachable.
func oidcProvider(p Provider, redirect string) *provider {
	turn := make(chan struct{}, 1) // not a mutex: waiting for an issuer that hangs must end with the context
	var found *oidc.Provider       // guarded by turn
	discover := func(ctx context.Context) (*oidc.Provider, error) {
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if found != nil {
			return found, nil
		}
		// The provider keeps the context for fetching keys later, so the request's context cannot
		// be used.
		d, err := oidc.NewProvider(bounded(context.Background()), p.Issuer)
		if err == nil {
			found = d
		}
		return d, err
	}
	return &provider{
		Provider: p,
		config: func(ctx context.Context) (*oauth2.Config, error) {
			d, err := discover(ctx)
			if err != nil {
				return nil, err
			}
			return &oauth2.Config{
				ClientID: p.ClientID, ClientSecret: p.ClientSecret, Endpoint: d.Endpoint(), RedirectURL: redirect,
				Scopes: []string{oidc.ScopeOpenID, "email"},
			}, nil
		},
		identity: func(ctx context.Context, t *oauth2.Token, nonce string) (auth.External, error) {
			d, err := discover(ctx)
			if err != nil {
				return auth.External{}, err
			}
			raw, _ := t.Extra("id_token").(string)
			id, err := d.Verifier(&oidc.Config{ClientID: p.ClientID}).Verify(bounded(ctx), raw)
			if err != nil {
				return auth.External{}, err
			}
			if subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(nonce)) != 1 {
				return auth.External{}, errors.New("the nonce does not match")
			}
			var claims struct {
				Email    string `json:"email"`
				Verified any    `json:"email_verified"` // some say "true"
			}
			if err := id.Claims(&claims); err != nil {
				return auth.External{}, err
			}
			if claims.Verified != true && claims.Verified != "true" {
				claims.Email = ""
			}
			return auth.External{Provider: p.Name, Subject: id.Subject, Email: claims.Email}, nil
		},
	}
}

// githubProvider asks GitHub's API for the user, because GitHub issues no identity tokens.
func githubProvider(p Provider, redirect string) *provider {
	site, api := "https://github.com", "https://api.github.com"
	if p.Issuer != "" { // a GitHub Enterprise installation
		site = strings.TrimRight(p.Issuer, "/")
		api = site + "/api/v3"
	}
	config := &oauth2.Config{
		ClientID: p.ClientID, ClientSecret: p.ClientSecret, RedirectURL: redirect, Scopes: []string{"read:user", "user:email"},
		Endpoint: oauth2.Endpoint{AuthURL: site + "/login/oauth/authorize", TokenURL: site + "/login/oauth/access_token", AuthStyle: oauth2.AuthStyleInParams},
	}
	return &provider{
		Provider: p,
		config:   func(context.Context) (*oauth2.Config, error) { return config, nil },
		identity: func(ctx context.Context, t *oauth2.Token, _ string) (auth.External, error) {
			client := config.Client(bounded(ctx), t)
			var user struct {
				ID int64 `json:"id"`
			}
			var emails []struct {
				Email    string `json:"email"`
				Primary  bool   `json:"primary"`
				Verified bool   `json:"verified"`
			}
			if err := get(ctx, client, api+"/user", &user); err != nil {
				return auth.External{}, err
			}
			if user.ID == 0 {
				return auth.External{}, errors.New("the answer has no user id")
			}
			if err := get(ctx, client, api+"/user/emails", &emails); err != nil {
				return auth.External{}, err
			}
			x := auth.External{Provider: p.Name, Subject: strconv.FormatInt(user.ID, 10)}
			for _, e := range emails {
				if e.Primary && e.Verified {
					x.Email = e.Email
				}
			}
			return x, nil
		},
	}
}

func get(ctx context.Context, client *http.Client, url string, v any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	return json.NewDecoder(io.LimitReader(resp.Body, answerMax)).Decode(v)
}
