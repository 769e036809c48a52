package modbox

import (
	"net/http"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/sandbox"
)

// realm is the value of a field whose meaning the product does not document.
const realm = "default"

// accountRoutes are the routes of sign-in, API tokens, workspaces and members.
func (c *Control) accountRoutes() map[string]handler {
	const one = "/workspaces/{workspace}"
	return map[string]handler{
		"POST /auth/login":                  c.login,
		"POST /auth/refresh":                c.refresh,
		"POST /auth/logout":                 c.logout,
		"POST /api-tokens":                  c.createToken,
		"GET /api-tokens":                   c.listTokens,
		"DELETE /api-tokens/{token}":        c.revokeToken,
		"POST /workspaces":                  c.createWorkspace,
		"GET /workspaces":                   c.listWorkspaces,
		"GET " + one:                        c.getWorkspace,
		"PUT " + one:                        c.updateWorkspace,
		"DELETE " + one:                     c.deleteWorkspace,
		"POST " + one + "/members":          c.addMember,
		"PUT " + one + "/members/{user}":    c.setRole,
		"DELETE " + one + "/members/{user}": c.removeMember,
	}
}

func identity(r *http.Request) auth.Identity {
	id, _ := auth.FromContext(r.Context())
	return id
}

func done(w http.ResponseWriter) error {
	return answer(w, struct {
		Success bool `json:"success"`
	}{true})
}

// made answers with status 201.
func made(w http.ResponseWriter, v any) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	return answer(w, v)
}

func (c *Control) login(w http.ResponseWriter, r *http.Request) error {
	in, err := readInput(w, r, bodyMax)
	if err != nil {
		return err
	}
	user, password := in.str("username", true, 1, 254), in.str("password", true, 1, 256)
	if err := in.err(); err != nil {
		return err
	}
	t, err := c.accounts.Login(r.Context(), user, password, r.RemoteAddr, auth.ForPage)
	return answerTokens(w, t, err)
}

func (c *Control) refresh(w http.ResponseWriter, r *http.Request) error {
	in, err := readInput(w, r, bodyMax)
	if err != nil {
		return err
	}
	refresh := in.str("refresh_token", true, 1, 128)
	if err := in.err(); err != nil {
		return err
	}
	t, err := c.accounts.Refresh(r.Context(), refresh, r.RemoteAddr)
	return answerTokens(w, t, err)
}

func answerTokens(w http.ResponseWriter, t auth.Tokens, err error) error {
	if err != nil {
		return err
	}
	type tokens struct {
		AccessToken      string `json:"access_token"`
		RefreshToken     string `json:"refresh_token"`
		ExpiresIn        int    `json:"expires_in"`
		RefreshExpiresIn int    `json:"refresh_expires_in"`
	}
	return answer(w, struct {
		Success bool   `json:"success"`
		Tokens  tokens `json:"tokens"`
	}{true, tokens{t.Access, t.Refresh, int(t.ExpiresIn / time.Second), int(t.RefreshesIn / time.Second)}})
}

func (c *Control) logout(w http.ResponseWriter, r *http.Request) error {
	if err := c.accounts.Logout(r.Context(), identity(r)); err != nil {
		return err
	}
	return done(w)
}

// apiToken is a token in the product's form; Token is set only when it was just created.
type apiToken struct {
	Token       string     `json:"token,omitempty"`
	ID          string     `json:"id"`
	Description string     `json:"description"`
	WorkspaceID string     `json:"workspace_id"`
	CreatedAt   time.Time  `json:"created_at"`
	LastUsedAt  *time.Time `json:"last_used_at"`
	ExpiresAt   *time.Time `json:"expires_at"`
}

func showToken(t account.Token) apiToken {
	return apiToken{
		ID: t.ID, Description: t.Description, WorkspaceID: string(t.Workspace),
		CreatedAt: t.CreatedAt, LastUsedAt: moment(t.LastUsedAt), ExpiresAt: moment(t.ExpiresAt),
	}
}

// moment returns nil for the zero time.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func (c *Control) createToken(w http.ResponseWriter, r *http.Request) error {
	in, err := readInput(w, r, bodyMax)
	if err != nil {
		return err
	}
	req := auth.TokenRequest{
		Description: in.str("description", false, 0, auth.DescriptionMax),
		Lifetime:    time.Duration(in.integer("expires_in_seconds", 0, 0, 315360000)) * time.Second,
	}
	if err := in.err(); err != nil {
		return err
	}
	text, t, err := c.auth.CreateToken(r.Context(), identity(r), req)
	if err != nil {
		return err
	}
	out := showToken(t)
	out.Token = text
	return made(w, out)
}

func (c *Control) listTokens(w http.ResponseWriter, r *http.Request) error {
	tokens, err := c.auth.ListTokens(r.Context(), identity(r))
	if err != nil {
		return err
	}
	out := struct {
		Tokens []apiToken `json:"tokens"`
		Total  int        `json:"total"`
	}{make([]apiToken, 0, len(tokens)), len(tokens)}
	for _, t := range tokens {
		out.Tokens = append(out.Tokens, showToken(t))
	}
	return answer(w, out)
}

// revokeToken accepts the text of a token, as the product does, or its ID.
func (c *Control) revokeToken(w http.ResponseWriter, r *http.Request) error {
	if err := c.auth.RevokeToken(r.Context(), identity(r), r.PathValue("token")); err != nil {
		return err
	}
	return done(w)
}

// workspaceDetail is a workspace in the product's form; Slug and Role are our additions.
type workspaceDetail struct {
	ID          string         `json:"id"`
	Name        string         `json:"name"`
	Description *string        `json:"description"`
	Realm       string         `json:"realm"`
	CreatedBy   string         `json:"created_by"`
	CreatedAt   time.Time      `json:"created_at"`
	UpdatedAt   time.Time      `json:"updated_at"`
	Members     []memberDetail `json:"members"`
	Slug        string         `json:"slug"`
	Role        string         `json:"role"`
}

type memberDetail struct {
	UserID    string    `json:"user_id"`
	Role      string    `json:"role"`
	Name      string    `json:"name"`
	Email     *string   `json:"email"`
	CreatedAt time.Time `json:"created_at"`
}

func showWorkspace(ws account.Workspace, members []account.Member) workspaceDetail {
	d := workspaceDetail{
		ID: string(ws.ID), Name: ws.Name, Description: optional(ws.Description), Realm: realm, CreatedBy: string(ws.CreatedBy),
		CreatedAt: ws.CreatedAt, UpdatedAt: ws.UpdatedAt, Slug: ws.Slug, Role: string(ws.Role), Members: make([]memberDetail, 0, len(members)),
	}
	for _, m := range members {
		d.Members = append(d.Members, showMember(m))
	}
	return d
}

func showMember(m account.Member) memberDetail {
	return memberDetail{UserID: string(m.User), Role: string(m.Role), Name: m.Name, Email: optional(m.Email), CreatedAt: m.CreatedAt}
}

func (c *Control) createWorkspace(w http.ResponseWriter, r *http.Request) error {
	in, err := readInput(w, r, bodyMax)
	if err != nil {
		return err
	}
	name, description := in.str("name", true, 1, 255), in.str("description", false, 0, 1000)
	if err := in.err(); err != nil {
		return err
	}
	id := identity(r)
	ws, err := c.accounts.CreateWorkspace(r.Context(), id, name, "", description)
	if err != nil {
		return err
	}
	id.Workspace, id.Role = ws.ID, ws.Role
	ws, members, err := c.accounts.Workspace(r.Context(), id)
	if err != nil {
		return err
	}
	return made(w, showWorkspace(ws, members))
}

func (c *Control) listWorkspaces(w http.ResponseWriter, r *http.Request) error {
	list, err := c.accounts.Workspaces(r.Context(), identity(r))
	if err != nil {
		return err
	}
	out := struct {
		Workspaces []workspaceDetail `json:"workspaces"`
		Total      int               `json:"total"`
	}{make([]workspaceDetail, 0, len(list)), len(list)}
	for _, ws := range list {
		out.Workspaces = append(out.Workspaces, showWorkspace(ws, nil))
	}
	return answer(w, out)
}

func (c *Control) getWorkspace(w http.ResponseWriter, r *http.Request) error {
	ws, members, err := c.accounts.Workspace(r.Context(), identity(r))
	if err != nil {
		return err
	}
	return answer(w, showWorkspace(ws, members))
}

func (c *Control) updateWorkspace(w http.ResponseWriter, r *http.Request) error {
	in, err := readInput(w, r, bodyMax)
	if err != nil {
		return err
	}
	u := account.WorkspaceUpdate{Name: optional(in.str("name", false, 1, 255)), Description: optional(in.str("description", false, 0, 1000))}
	if err := in.err(); err != nil {
		return err
	}
	if _, err := c.accounts.UpdateWorkspace(r.Context(), identity(r), u); err != nil {
		return err
	}
	return c.getWorkspace(w, r)
}

func (c *Control) deleteWorkspace(w http.ResponseWriter, r *http.Request) error {
	if err := c.accounts.DeleteWorkspace(r.Context(), identity(r)); err != nil {
		return err
	}
	return done(w)
}

// addMember answers with the member, or with an invitation for an unknown address.
func (c *Control) addMember(w http.ResponseWriter, r *http.Request) error {
	in, err := readInput(w, r, bodyMax)
	if err != nil {
		return err
	}
	email, role := in.str("email", true, 3, 254), in.str("role", true, 1, 20)
	if !strings.Contains(email, "@") && len(in.faults) == 0 {
		in.fault("email", "value_error", "value is not a valid email address")
	}
	if err := in.err(); err != nil {
		return err
	}
	m, i, code, err := c.accounts.AddMember(r.Context(), identity(r), email, account.Role(role))
	if err != nil {
		return err
	}
	if m != nil {
		return made(w, showMember(*m))
	}
	return made(w, struct {
		Invited   bool      `json:"invited"`
		Email     string    `json:"email"`
		Role      string    `json:"role"`
		Code      string    `json:"code"`
		ExpiresAt time.Time `json:"expires_at"`
	}{true, i.Email, string(i.Role), code, i.ExpiresAt})
}

func (c *Control) setRole(w http.ResponseWriter, r *http.Request) error {
	in, err := readInput(w, r, bodyMax)
	if err != nil {
		return err
	}
	role := in.str("role", true, 1, 20)
	if err := in.err(); err != nil {
		return err
	}
	m, err := c.accounts.SetRole(r.Context(), identity(r), sandbox.UserID(r.PathValue("user")), account.Role(role))
	if err != nil {
		return err
	}
	return answer(w, showMember(m))
}

func (c *Control) removeMember(w http.ResponseWriter, r *http.Request) error {
	if err := c.accounts.RemoveMember(r.Context(), identity(r), sandbox.UserID(r.PathValue("user"))); err != nil {
		return err
	}
	return done(w)
}
