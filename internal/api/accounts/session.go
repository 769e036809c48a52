package accounts

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/auth/sso"
	"github.com/modbox/modbox/internal/page"
)

// Sessions are the routes of sign-ins and sessions.
type Sessions struct {
	Accounts *auth.Accounts
	SSO      *sso.SignIn
}

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

// Register adds the routes.
func (h *Sessions) Register(m *route.Mux) {
	tags := []string{"sign-in"}
	route.JSON(m, huma.Operation{
		OperationID: "login", Method: http.MethodPost, Path: "/v1/auth/login", Tags: tags,
		Summary: "Sign in", Description: "By name, or e-mail address, and password. Programs use API tokens instead.",
	}, h.login)
	route.JSON(m, huma.Operation{
		OperationID: "refresh-session", Method: http.MethodPost, Path: "/v1/auth/refresh", Tags: tags,
		Summary: "Refresh a session", Description: "Answers the next pair of tokens. A refresh token that is used twice ends the session.",
	}, h.refresh)
	route.JSON(m, huma.Operation{
		OperationID: "accept-invitation", Method: http.MethodPost, Path: "/v1/auth/accept", Tags: tags,
		Summary: "Accept an invitation", Description: "Makes the user, or sets the password of the one the code is for, and signs in.",
	}, h.acceptInvitation)
	route.JSON(m, huma.Operation{
		OperationID: "exchange-code", Method: http.MethodPost, Path: "/v1/auth/exchange", Tags: tags,
		Summary: "Exchange the code of a sign-in", Description: "Begins the session of a program whose user has signed in through another service. A code works once, for five minutes, and only with the text that the sign-in's code_challenge was made of. The session lasts 90 days, and ends when it is not refreshed for 30.",
	}, h.exchangeCode)
	route.JSON(m, huma.Operation{
		OperationID: "list-sign-in-providers", Method: http.MethodGet, Path: "/v1/auth/providers", Tags: tags,
		Summary: "List the services that people sign in with", Description: "Their names, sorted. A browser begins at GET /auth/sso/{name}?redirect=…&state=… and ends at redirect, a path of the server, with the session's tokens in the fragment. For a program it also has a code_challenge (PKCE, S256); redirect is then http://127.0.0.1:PORT/…, which gets a `code` and the `state`, or left out, and the code is shown.",
	}, func(_ context.Context, in *route.PageInput) (*route.Body[wire.Page[string]], error) {
		itself := func(name string) string { return name }
		return route.PagedOf(*in, h.SSO.Names(), nil, page.Order[string]{Name: "providers", Key: itself}, itself)
	})
	route.JSON(m, huma.Operation{
		OperationID: "logout", Method: http.MethodPost, Path: "/v1/auth/logout", Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Sign out", Description: "Ends the session whose access token was presented, with all its access and refresh tokens. API tokens go on. DELETE /v1/account/sessions signs out everywhere.",
	}, func(ctx context.Context, _ *struct{}) (*struct{}, error) {
		id, _ := auth.FromContext(ctx)
		return nil, h.Accounts.Logout(ctx, id)
	})
	route.JSON(m, huma.Operation{
		OperationID: "set-password", Method: http.MethodPut, Path: "/v1/account/password", Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Change the caller's password", Description: "Ends all sessions of the user but the session of the presented access token; API tokens go on.",
	}, func(ctx context.Context, in *passwordInput) (*struct{}, error) {
		id, _ := auth.FromContext(ctx)
		return nil, h.Accounts.SetPassword(ctx, id, in.Body.CurrentPassword, in.Body.Password)
	})
	route.JSON(m, huma.Operation{
		OperationID: "list-sessions", Method: http.MethodGet, Path: "/v1/account/sessions", Tags: tags,
		Summary: "List sessions", Description: "The caller's sign-ins that have not ended, the newest first.",
	}, h.listSessions)
	route.JSON(m, huma.Operation{
		OperationID: "delete-session", Method: http.MethodDelete, Path: "/v1/account/sessions/{session}", Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "End a session", Description: "One of the caller's. Its tokens stop working at once.",
	}, func(ctx context.Context, in *sessionInput) (*struct{}, error) {
		id, _ := auth.FromContext(ctx)
		return nil, h.Accounts.EndSession(ctx, id, in.ID)
	})
	route.JSON(m, huma.Operation{
		OperationID: "delete-sessions", Method: http.MethodDelete, Path: "/v1/account/sessions", Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Sign out everywhere", Description: "Ends all sessions of the caller, also the session of the presented access token. API tokens go on.",
	}, func(ctx context.Context, _ *struct{}) (*struct{}, error) {
		id, _ := auth.FromContext(ctx)
		return nil, h.Accounts.EndSessions(ctx, id)
	})
}

func (h *Sessions) listSessions(ctx context.Context, in *route.PageInput) (*route.Body[wire.Page[wire.SignInSession]], error) {
	id, _ := auth.FromContext(ctx)
	sessions, err := h.Accounts.Sessions(ctx, id)
	return route.PagedOf(*in, sessions, err, page.Order[account.Session]{
		Name: "sessions", Key: func(x account.Session) string { return page.ByTime(x.CreatedAt, x.ID) }, Descending: true,
	}, func(x account.Session) wire.SignInSession {
		return wire.SignInSession{
			ID: x.ID, Method: x.Method, Address: x.Address, Current: x.ID == id.Session,
			CreatedAt: x.CreatedAt, RefreshedAt: x.RefreshedAt, ExpiresAt: x.RefreshExpiresAt,
		}
	})
}

func (h *Sessions) login(ctx context.Context, in *loginInput) (*route.Body[wire.SessionTokens], error) {
	return session(h.Accounts.Login(ctx, in.Body.Username, in.Body.Password, edge.RemoteAddr(ctx), auth.UseOf(in.Body.Program)))
}

func (h *Sessions) refresh(ctx context.Context, in *refreshInput) (*route.Body[wire.SessionTokens], error) {
	return session(h.Accounts.Refresh(ctx, in.Body.RefreshToken, edge.RemoteAddr(ctx)))
}

func (h *Sessions) acceptInvitation(ctx context.Context, in *acceptInput) (*route.Body[wire.SessionTokens], error) {
	return session(h.Accounts.Accept(ctx, in.Body.Code, in.Body.Name, in.Body.Password, edge.RemoteAddr(ctx), auth.UseOf(in.Body.Program)))
}

func (h *Sessions) exchangeCode(ctx context.Context, in *exchangeInput) (*route.Body[wire.SessionTokens], error) {
	return session(h.SSO.Exchange(ctx, in.Body.Code, in.Body.CodeVerifier, edge.RemoteAddr(ctx), auth.ForProgram))
}

func session(t auth.Tokens, err error) (*route.Body[wire.SessionTokens], error) {
	if err != nil {
		return nil, err
	}
	return route.Reply(wire.SessionTokens{
		AccessToken: t.Access, RefreshToken: t.Refresh,
		ExpiresIn: int(t.ExpiresIn / time.Second), RefreshExpiresIn: int(t.RefreshesIn / time.Second),
	}), nil
}
