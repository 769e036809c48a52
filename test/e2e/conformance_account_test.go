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
		s, err := c.Login(ctx, a.UserName, a.Password)
		return signedIn(c, s, err)
	},
	"accept_invitation": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		s, err := c.AcceptInvitation(ctx, a.Code, a.Name, a.Password)
		return signedIn(c, s, err)
	},
	"account.providers": func(ctx context.Context, c *client.Client, _ arguments) (any, error) {
		return c.Providers().Collect(ctx)
	},
	"account.logout": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		if a.Everywhere {
			return nil, c.DeleteSessions(ctx)
		}
		return nil, c.Logout(ctx)
	},
	"account.sessions": func(ctx context.Context, c *client.Client, _ arguments) (any, error) {
		return c.Sessions().Collect(ctx)
	},
	"account.delete_session": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return nil, c.DeleteSession(ctx, a.ID)
	},
	"account.set_password": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return nil, c.SetPassword(ctx, a.CurrentPassword, a.Password)
	},
	"users.create": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.CreateUser(ctx, client.UserOptions{Name: a.Name, Email: a.Email})
	},
	"users.list": func(ctx context.Context, c *client.Client, _ arguments) (any, error) { return c.Users().Collect(ctx) },
	"users.update": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.UpdateUser(ctx, a.Who, client.UserChange{Disabled: a.Disabled})
	},
	"users.delete": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return nil, c.DeleteUser(ctx, a.Who)
	},
	"users.reset_password": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.ResetPassword(ctx, a.Who)
	},
	"registries.create": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.CreateRegistry(ctx, a.registry())
	},
	"registries.list": func(ctx context.Context, c *client.Client, _ arguments) (any, error) {
		return c.Registries().Collect(ctx)
	},
	"registries.get": func(ctx context.Context, c *client.Client, a arguments) (any, error) { return c.Registry(ctx, a.ID) },
	"registries.update": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.UpdateRegistry(ctx, a.ID, a.registry())
	},
	"registries.delete": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return nil, c.DeleteRegistry(ctx, a.ID)
	},
	"sandbox_images.create": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.CreateSandboxImage(ctx, a.sandboxImage())
	},
	"sandbox_images.list": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.SandboxImages(a.EnabledOnly).Collect(ctx)
	},
	"sandbox_images.get": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.SandboxImage(ctx, a.ID)
	},
	"sandbox_images.update": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.UpdateSandboxImage(ctx, a.ID, a.sandboxImage())
	},
	"sandbox_images.delete": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return nil, c.DeleteSandboxImage(ctx, a.ID)
	},
	"images.pull": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		type event struct {
			Type  string        `json:"type"`
			Image *client.Image `json:"image,omitempty"`
		}
		events := []event{}
		image, err := c.PullImage(ctx, a.Image, func(client.ImageProgress) { events = append(events, event{Type: "progress"}) })
		return append(events, event{"done", image}), err
	},
}
