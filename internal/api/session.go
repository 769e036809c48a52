package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/page"
)

type (
	loginInput    struct{ Body wire.Login }
	refreshInput  struct{ Body wire.Refresh }
	acceptInput   struct{ Body wire.AcceptInvitation }
	exchangeInput struct{ Body wire.ExchangeCode }
	passwordInput struct{ Body wire.SetPassword }
	sessionInput  struct {
		ID string `path:"session" maxLength:"64" doc:"The session's id."`
	}
)

func (s *Server) registerSessions(a huma.API) {
	tags := []string{"sign-in"}
	route(a, huma.Operation{
		OperationID: "login", Method: http.MethodPost, Path: "/v1/auth/login", Tags: tags,
		Summary: "Sign in", Description: "By name, or e-mail address, and password. Programs use API tokens instead.",
	}, s.login)
	route(a, huma.Operation{
		OperationID: "refresh-session", Method: http.MethodPost, Path: "/v1/auth/refresh", Tags: tags,
		Summary: "Refresh a session", Description: "Answers the next pair of tokens. A refresh token that is used twice ends the session.",
	}, s.refresh)
	route(a, huma.Operation{
		OperationID: "accept-invitation", Method: http.MethodPost, Path: "/v1/auth/accept", Tags: tags,
		Summary: "Accept an invitation", Description: "Makes the user, or sets the password of the one the code is for, and signs in.",
	}, s.acceptInvitation)
	route(a, huma.Operation{
		OperationID: "exchange-code", Method: http.MethodPost, Path: "/v1/auth/exchange", Tags: tags,
		Summary: "Exchange the code of a sign-in", Description: "Begins the session of a program whose user has signed in through another service. A code works once, for five minutes, and only with the text that the sign-in's code_challenge was made of. The session lasts 90 days, and ends when it is not refreshed for 30.",
	}, s.exchangeCode)
	route(a, huma.Operation{
		OperationID: "list-sign-in-providers", Method: http.MethodGet, Path: "/v1/auth/providers", Tags: tags,
		Summary: "List the services that people sign in with", Description: "Their names, sorted. A browser begins at GET /auth/sso/{name}?redirect=…&state=… and ends at redirect, a path of the server, with the session's tokens in the fragment. For a program it also has a code_challenge (PKCE, S256); redirect is then http://127.0.0.1:PORT/…, which gets a `code` and the `state`, or left out, and the code is shown.",
	}, func(_ context.Context, in *PageInput) (*body[wire.Page[string]], error) {
		itself := func(name string) string { return name }
		return pagedOf(*in, s.deps.SSO.Names(), nil, page.Order[string]{Name: "providers", Key: itself}, itself)
	})
	route(a, huma.Operation{
		OperationID: "logout", Method: http.MethodPost, Path: "/v1/auth/logout", Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Sign out", Description: "Ends the session whose access token was presented, with all its access and refresh tokens. API tokens go on. DELETE /v1/account/sessions signs out everywhere.",
	}, func(ctx context.Context, _ *struct{}) (*struct{}, error) {
		id, _ := auth.FromContext(ctx)
		return nil, s.accounts.Logout(ctx, id)
	})
	route(a, huma.Operation{
		OperationID: "set-password", Method: http.MethodPut, Path: "/v1/account/password", Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Change the caller's password", Description: "Ends all sessions of the user but the session of the presented access token; API tokens go on.",
	}, func(ctx context.Context, in *passwordInput) (*struct{}, error) {
		id, _ := auth.FromContext(ctx)
		return nil, s.accounts.SetPassword(ctx, id, in.Body.CurrentPassword, in.Body.Password)
	})
	route(a, huma.Operation{
		OperationID: "list-sessions", Method: http.MethodGet, Path: "/v1/account/sessions", Tags: tags,
		Summary: "List sessions", Description: "The caller's sign-ins that have not ended, the newest first.",
	}, s.listSessions)
	route(a, huma.Operation{
		OperationID: "delete-session", Method: http.MethodDelete, Path: "/v1/account/sessions/{session}", Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "End a session", Description: "One of the caller's. Its tokens stop working at once.",
	}, func(ctx context.Context, in *sessionInput) (*struct{}, error) {
		id, _ := auth.FromContext(ctx)
		return nil, s.accounts.EndSession(ctx, id, in.ID)
	})
	route(a, huma.Operation{
		OperationID: "delete-sessions", Method: http.MethodDelete, Path: "/v1/account/sessions", Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Sign out everywhere", Description: "Ends all sessions of the caller, also the session of the presented access token. API tokens go on.",
	}, func(ctx context.Context, _ *struct{}) (*struct{}, error) {
		id, _ := auth.FromContext(ctx)
		return nil, s.accounts.EndSessions(ctx, id)
	})
}

func (s *Server) listSessions(ctx context.Context, in *PageInput) (*body[wire.Page[wire.SignInSession]], error) {
	id, _ := auth.FromContext(ctx)
	sessions, err := s.accounts.Sessions(ctx, id)
	return pagedOf(*in, sessions, err, page.Order[account.Session]{
		Name: "sessions", Key: func(x account.Session) string { return page.ByTime(x.CreatedAt, x.ID) }, Descending: true,
	}, func(x account.Session) wire.SignInSession {
		return wire.SignInSession{
			ID: x.ID, Method: x.Method, Address: x.Address, Current: x.ID == id.Session,
			CreatedAt: x.CreatedAt, RefreshedAt: x.RefreshedAt, ExpiresAt: x.RefreshExpiresAt,
		}
	})
}

func (s *Server) login(ctx context.Context, in *loginInput) (*body[wire.SessionTokens], error) {
	return session(s.accounts.Login(ctx, in.Body.Username, in.Body.Password, edge.RemoteAddr(ctx), auth.Use(in.Body.Program)))
}

func (s *Server) refresh(ctx context.Context, in *refreshInput) (*body[wire.SessionTokens], error) {
	return session(s.accounts.Refresh(ctx, in.Body.RefreshToken, edge.RemoteAddr(ctx)))
}

func (s *Server) acceptInvitation(ctx context.Context, in *acceptInput) (*body[wire.SessionTokens], error) {
	return session(s.accounts.Accept(ctx, in.Body.Code, in.Body.Name, in.Body.Password, edge.RemoteAddr(ctx), auth.Use(in.Body.Program)))
}

func (s *Server) exchangeCode(ctx context.Context, in *exchangeInput) (*body[wire.SessionTokens], error) {
	return session(s.deps.SSO.Exchange(ctx, in.Body.Code, in.Body.CodeVerifier, edge.RemoteAddr(ctx)))
}

func session(t auth.Tokens, err error) (*body[wire.SessionTokens], error) {
	if err != nil {
		return nil, err
	}
	return reply(wire.SessionTokens{
		AccessToken: t.Access, RefreshToken: t.Refresh,
		ExpiresIn: int(t.ExpiresIn / time.Second), RefreshExpiresIn: int(t.RefreshesIn / time.Second),
	}), nil
}
