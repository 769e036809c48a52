package auth

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	nameMax        = 255  // characters of a workspace's name
	descriptionMax = 1000 // characters of its description
	emailMax       = 254
	// InvitationTime is how long an invitation is valid.
	InvitationTime = 7 * 24 * time.Hour
)

// reservedSlugs are the first words of references to images that belong to no workspace, now or
// possibly in the future.
var reservedSlugs = []string{"modbox", "library", "public"}

var slugForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`) })

// CreateWorkspace creates a workspace that the identity's user owns. If slug is empty, it is
// derived from the name. Errors: Invalid; Exists, naming slug; QuotaExceeded when the user has
// created as many as allowed.
func (c *Accounts) CreateWorkspace(ctx context.Context, id Identity, name, slug, description string) (account.Workspace, error) {
	ws := newWorkspace(id.User, name, slug)
	ws.Description, ws.Role = description, account.RoleOwner
	if err := checkWorkspace(&ws.Name, &ws.Slug, &ws.Description); err != nil {
		return account.Workspace{}, err
	}
	most := c.cfg.MaxWorkspaces
	if id.Administrator {
		most = 0
	}
	if err := c.store.Workspaces.CreateWorkspace(ctx, ws, most); err != nil {
		return account.Workspace{}, fmt.Errorf("record workspace %s: %w", ws.ID, err)
	}
	audit.FromContext(ctx).Made("workspace", string(ws.ID), ws.Slug)
	return ws, nil
}

// newWorkspace returns a workspace of user; an empty slug is replaced by a unique one derived from
// the name.
func newWorkspace(user sandbox.UserID, name, slug string) account.Workspace {
	now := time.Now().UTC()
	if slug == "" {
		var random [4]byte
		_, _ = rand.Read(random[:]) // never fails: crypto/rand aborts the program instead
		slug = strings.Trim(sandbox.Slug(name)+"-"+hex.EncodeToString(random[:]), "-")
	}
	return account.Workspace{ID: sandbox.NewWorkspaceID(), Name: name, Slug: slug, CreatedBy: user, CreatedAt: now, UpdatedAt: now}
}

func checkWorkspace(name, slug, description *string) error {
	if name != nil {
		if err := sandbox.CheckText("name", *name, 1, nameMax); err != nil {
			return err
		}
	}
	if slug != nil && !slugForm().MatchString(*slug) {
		return sandbox.InvalidField("slug", "must be 1 to 63 of a-z, 0-9 and -, beginning and ending with a letter or digit")
	}
	if slug != nil && (slices.Contains(reservedSlugs, *slug) || uuid.Validate(*slug) == nil) {
		return sandbox.InvalidField("slug", "%q is reserved: it must not be one of %s, nor a UUID, because ids of workspaces are UUIDs", *slug, list(reservedSlugs))
	}
	if description != nil && utf8.RuneCountInString(*description) > descriptionMax {
		return sandbox.InvalidField("description", "must have at most %d characters", descriptionMax)
	}
	return nil
}

// Workspaces returns the workspaces of the identity's user with the user's roles. A token that is
// limited to a workspace sees only that workspace.
func (c *Accounts) Workspaces(ctx context.Context, id Identity) ([]account.Workspace, error) {
	list, err := c.store.Workspaces.Workspaces(ctx, id.User)
	if err != nil || !id.WorkspaceOnly {
		return list, err
	}
	for _, ws := range list {
		if ws.ID == id.Workspace {
			return []account.Workspace{ws}, nil
		}
	}
	return nil, nil
}

// Workspace returns the identity's workspace and its members. Errors: NotFound.
func (c *Accounts) Workspace(ctx context.Context, id Identity) (account.Workspace, []account.Member, error) {
	ws, err := c.store.Workspaces.Workspace(ctx, id.Workspace)
	if err != nil {
		return account.Workspace{}, nil, err
	}
	ws.Role = id.Role
	members, err := c.store.Members.Members(ctx, id.Workspace)
	return ws, members, err
}

// UpdateWorkspace changes the identity's workspace. Errors: Invalid; NotFound;
// Exists, naming slug.
func (c *Accounts) UpdateWorkspace(ctx context.Context, id Identity, u account.WorkspaceUpdate) (account.Workspace, error) {
	slug := u.Slug
	if slug != nil {
		if now, err := c.store.Workspaces.Workspace(ctx, id.Workspace); err != nil {
			return account.Workspace{}, err
		} else if now.Slug == *slug {
			slug = nil // unchanged; it may be older than its reservation
		}
	}
	if err := checkWorkspace(u.Name, slug, u.Description); err != nil {
		return account.Workspace{}, err
	}
	if u.URLAccess != nil && !u.URLAccess.Valid() {
		return account.Workspace{}, sandbox.InvalidField("url_access", "must be %s or %s", sandbox.URLOpen, sandbox.URLKey)
	}
	if u.CodeScan != nil && !u.CodeScan.Valid() {
		return account.Workspace{}, sandbox.InvalidField("code_scan", "must be %s, %s or %s", account.CodeScanOff, account.CodeScanWarn, account.CodeScanBlock)
	}
	if u.CodeScanRules != nil {
		if err := u.CodeScanRules.Check("code_scan_rules"); err != nil {
			return account.Workspace{}, err
		}
	}
	u.At = time.Now().UTC()
	ws, err := c.store.Workspaces.UpdateWorkspace(ctx, id.Workspace, u)
	c.auth.forget() // another workspace may take the old slug
	ws.Role = id.Role
	return ws, err
}

// DeleteWorkspace deletes the identity's workspace with everything in it. When it returns, the
// workspace cannot be used any more; its sandboxes are destroyed in the background, by the next
// server if necessary. Errors: NotFound; Conflict for the first workspace of the installation.
func (c *Accounts) DeleteWorkspace(ctx context.Context, id Identity) error {
	if err := c.store.Workspaces.MarkWorkspaceDeleting(ctx, id.Workspace, time.Now()); err != nil {
		return fmt.Errorf("delete workspace %s: %w", id.Workspace, err)
	}
	c.auth.forget()
	select {
	case c.tidying <- struct{}{}:
	default: // tidy has been woken already
	}
	return nil
}

// AddMember makes the user with that name or e-mail address a member of the identity's workspace.
// If no user has the address, AddMember invites it: then the member is nil, and the returned code
// must be passed to the invited person; it cannot be retrieved again.
//
// Errors: Invalid; Exists; Forbidden when the role is above the identity's own; NotFound for an
// unknown name.
func (c *Accounts) AddMember(ctx context.Context, id Identity, who string, role account.Role) (*account.Member, *account.Invitation, string, error) {
	if err := assignable(id, role); err != nil {
		return nil, nil, "", err
	}
	who = strings.ToLower(strings.TrimSpace(who))
	if strings.Contains(who, "@") {
		if err := checkEmail("email", who); err != nil {
			return nil, nil, "", err
		}
	}
	u, err := c.store.Users.UserByLogin(ctx, who)
	switch {
	case sandbox.CodeOf(err) == sandbox.NotFound && strings.Contains(who, "@"):
		i, code, err := c.invite(ctx, id, account.Invitation{Workspace: id.Workspace, Role: role, Email: who})
		return nil, i, code, err
	case sandbox.CodeOf(err) == sandbox.NotFound:
		return nil, nil, "", &sandbox.Error{Code: sandbox.NotFound, Field: "name", Message: "there is no such user; to invite somebody, give an e-mail address"}
	case err != nil:
		return nil, nil, "", fmt.Errorf("look up user: %w", err)
	}
	e := audit.FromContext(ctx)
	e.Object("member", string(u.ID), u.Name)
	e.Detail("role", string(role))
	if err := c.store.Members.AddMember(ctx, id.Workspace, u.ID, role, time.Now().UTC()); err != nil {
		return nil, nil, "", err
	}
	m, err := c.store.Members.Member(ctx, id.Workspace, u.ID)
	return &m, nil, "", err
}

// assignable returns an error unless the identity may give the role to members.
func assignable(id Identity, role account.Role) error {
	if !role.Valid() {
		return sandbox.InvalidField("role", "must be one of %s", list(account.Roles))
	}
	if role == account.RoleOwner && id.Role != account.RoleOwner {
		return &sandbox.Error{Code: sandbox.Forbidden, Field: "role", Message: "only an owner may make somebody an owner"}
	}
	return nil
}

// SetRole changes the role of a member of the identity's workspace. Errors: Invalid; NotFound;
// Forbidden when the old or new role is owner and the identity is not an owner; Conflict when no
// owner would remain.
func (c *Accounts) SetRole(ctx context.Context, id Identity, user sandbox.UserID, role account.Role) (account.Member, error) {
	m, err := c.store.Members.Member(ctx, id.Workspace, user)
	if err == nil {
		err = assignable(id, role)
	}
	if err == nil && m.Role == account.RoleOwner && id.Role != account.RoleOwner {
		err = sandbox.Errorf(sandbox.Forbidden, "only an owner may change the role of an owner")
	}
	audit.FromContext(ctx).Detail("role", string(role))
	if err == nil {
		err = c.store.Members.SetRole(ctx, id.Workspace, user, role)
	}
	c.auth.forget()
	m.Role = role
	return m, err
}

// RemoveMember ends a membership in the identity's workspace, and revokes the member's tokens for
// it. Members may always remove themselves; removing others needs the permission
// [account.MembersWrite], and removing an owner needs an owner.
//
// Errors: NotFound; Forbidden; Conflict when no owner would remain.
func (c *Accounts) RemoveMember(ctx context.Context, id Identity, user sandbox.UserID) error {
	m, err := c.store.Members.Member(ctx, id.Workspace, user)
	if err == nil && user != id.User {
		err = id.require(account.MembersWrite)
	}
	if err != nil {
		return err
	}
	if m.Role == account.RoleOwner && id.Role != account.RoleOwner {
		return sandbox.Errorf(sandbox.Forbidden, "only an owner may remove an owner")
	}
	err = c.store.Members.RemoveMember(ctx, id.Workspace, user, time.Now().UTC())
	c.auth.forget()
	return err
}

// invite records an invitation and returns it with its code.
func (c *Accounts) invite(ctx context.Context, id Identity, i account.Invitation) (*account.Invitation, string, error) {
	code := secret(prefixInvitation)
	now := time.Now().UTC()
	i.ID, i.Hash, i.CreatedBy, i.CreatedAt, i.ExpiresAt = uuid.Must(uuid.NewV7()).String(), Hash(code), id.User, now, now.Add(InvitationTime)
	if err := c.store.Invitations.CreateInvitation(ctx, i); err != nil {
		return nil, "", fmt.Errorf("record invitation %s: %w", i.ID, err)
	}
	audit.FromContext(ctx).Made("invitation", i.ID, i.Email)
	return &i, code, nil
}

// Invitations returns the open invitations to the identity's workspace, without their codes.
func (c *Accounts) Invitations(ctx context.Context, id Identity) ([]account.Invitation, error) {
	return c.store.Invitations.Invitations(ctx, id.Workspace, time.Now())
}

// WithdrawInvitation ends an invitation to the identity's workspace. Errors: NotFound.
func (c *Accounts) WithdrawInvitation(ctx context.Context, id Identity, invitation string) error {
	return c.store.Invitations.DeleteInvitation(ctx, id.Workspace, invitation)
}
