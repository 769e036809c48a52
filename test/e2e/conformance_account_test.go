package e2e_test

import (
	"context"

	"github.com/modbox/modbox/client"
)

// given is a field that a scenario writes only when it names it.
func given[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func (a arguments) registry() client.RegistryFields {
	return client.RegistryFields{
		Name: given(a.Name), Server: given(a.Server), Username: given(a.UserName), Password: given(a.Password), Enabled: a.Enabled,
	}
}

func (a arguments) sandboxImage() client.SandboxImageFields {
	return client.SandboxImageFields{
		Name: given(a.Name), Image: given(a.Image), Tag: given(a.Tag), Description: given(a.Description), Enabled: a.Enabled,
		MemoryMB: given(a.MemoryMB), TTLSeconds: given(a.TTLSeconds), RegistryID: given(a.RegistryID),
	}
}

// signedIn is a client for a session.
func signedIn(c *client.Client, s *client.SignIn, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return c.WithToken(s.AccessToken), nil
}

// accountCalls are the calls about accounts, users, registries and the catalogue.
var accountCalls = map[string]call{
	"login": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		s, err := c.Account.Login(ctx, a.UserName, a.Password)
		return signedIn(c, s, err)
	},
	"accept_invitation": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		s, err := c.Account.AcceptInvitation(ctx, a.Code, a.Name, a.Password)
		return signedIn(c, s, err)
	},
	"account.providers": func(ctx context.Context, c *client.Client, _ arguments) (any, error) {
		return c.Account.Providers().Collect(ctx)
	},
	"account.logout": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		if a.Everywhere {
			return nil, c.Account.DeleteSessions(ctx)
		}
		return nil, c.Account.Logout(ctx)
	},
	"account.sessions": func(ctx context.Context, c *client.Client, _ arguments) (any, error) {
		return c.Account.Sessions().Collect(ctx)
	},
	"account.delete_session": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return nil, c.Account.DeleteSession(ctx, a.ID)
	},
	"account.set_password": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return nil, c.Account.SetPassword(ctx, a.CurrentPassword, a.Password)
	},
	"users.create": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Users.Create(ctx, client.UserOptions{Name: a.Name, Email: a.Email})
	},
	"users.list": func(ctx context.Context, c *client.Client, _ arguments) (any, error) {
		return c.Users.List().Collect(ctx)
	},
	"users.update": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Users.Update(ctx, a.Who, client.UserChange{Disabled: a.Disabled})
	},
	"users.delete": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return nil, c.Users.Delete(ctx, a.Who)
	},
	"users.reset_password": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Users.ResetPassword(ctx, a.Who)
	},
	"registries.create": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Registries.Create(ctx, a.registry())
	},
	"registries.list": func(ctx context.Context, c *client.Client, _ arguments) (any, error) {
		return c.Registries.List().Collect(ctx)
	},
	"registries.get": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Registries.Get(ctx, a.ID)
	},
	"registries.update": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Registries.Update(ctx, a.ID, a.registry())
	},
	"registries.delete": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return nil, c.Registries.Delete(ctx, a.ID)
	},
	"sandbox_images.create": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.SandboxImages.Create(ctx, a.sandboxImage())
	},
	"sandbox_images.list": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.SandboxImages.List(a.EnabledOnly).Collect(ctx)
	},
	"sandbox_images.get": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.SandboxImages.Get(ctx, a.ID)
	},
	"sandbox_images.update": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.SandboxImages.Update(ctx, a.ID, a.sandboxImage())
	},
	"sandbox_images.delete": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return nil, c.SandboxImages.Delete(ctx, a.ID)
	},
	"images.pull": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		type event struct {
			Type  string        `json:"type"`
			Image *client.Image `json:"image,omitempty"`
		}
		events := []event{}
		image, err := c.Images.Pull(ctx, a.Image, func(client.ImageProgress) { events = append(events, event{Type: "progress"}) })
		return append(events, event{"done", image}), err
	},
}
