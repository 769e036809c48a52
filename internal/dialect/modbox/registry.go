package modbox

import (
	"net/http"
	"time"

	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
)

// registryDetail is a registry in the product's form.
type registryDetail struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Server    string    `json:"server"`
	Username  string    `json:"username"`
	Email     *string   `json:"email"`
	Enabled   bool      `json:"enabled"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

func showRegistry(r registry.Credential) registryDetail {
	return registryDetail{
		ID: string(r.ID), Name: r.Name, Server: r.Server, Username: r.Username, Email: optional(r.Email), Enabled: r.Enabled,
		CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt,
	}
}

// registryFields reads the writable fields of a registry.
func registryFields(in *input, required bool) registry.Fields {
	f := registry.Fields{
		Name: in.text("name", required, 1, registry.NameMax), Server: in.text("server", required, 1, registry.ServerMax),
		Username: in.text("username", required, 1, registry.UsernameMax),
		Password: in.text("password", required, 1, registry.PasswordMax),
		Email:    in.text("email", false, 0, registry.NameMax),
		Verify:   in.boolean("verify"),
	}
	if _, ok := in.raw("enabled", false); ok {
		enabled := in.boolean("enabled")
		f.Enabled = &enabled
	}
	return f
}

// text is str for a field that may be absent, which is nil.
func (in *input) text(field string, required bool, min, max int) *string {
	if _, ok := in.raw(field, false); !ok && !required {
		return nil
	}
	s := in.str(field, required, min, max)
	return &s
}

func (c *Control) createRegistry(w http.ResponseWriter, r *http.Request) error {
	in, err := readInput(w, r, bodyMax)
	if err != nil {
		return err
	}
	f := registryFields(in, true)
	if err := in.err(); err != nil {
		return err
	}
	who := caller(r.Context())
	reg, err := c.registries.Create(r.Context(), who.Workspace, who.User, f)
	if err != nil {
		return err
	}
	return made(w, showRegistry(reg))
}

func (c *Control) listRegistries(w http.ResponseWriter, r *http.Request) error {
	list, err := c.registries.List(r.Context(), caller(r.Context()).Workspace)
	if err != nil {
		return err
	}
	out := struct {
		Registries []registryDetail `json:"registries"`
		Total      int              `json:"total"`
	}{make([]registryDetail, 0, len(list)), len(list)}
	for _, reg := range list {
		out.Registries = append(out.Registries, showRegistry(reg))
	}
	return answer(w, out)
}

func (c *Control) getRegistry(w http.ResponseWriter, r *http.Request) error {
	reg, err := c.registries.Get(r.Context(), caller(r.Context()).Workspace, sandbox.RegistryID(r.PathValue("registry_id")))
	if err != nil {
		return err
	}
	return answer(w, showRegistry(reg))
}

func (c *Control) updateRegistry(w http.ResponseWriter, r *http.Request) error {
	in, err := readInput(w, r, bodyMax)
	if err != nil {
		return err
	}
	f := registryFields(in, false)
	if err := in.err(); err != nil {
		return err
	}
	reg, err := c.registries.Update(r.Context(), caller(r.Context()).Workspace, sandbox.RegistryID(r.PathValue("registry_id")), f)
	if err != nil {
		return err
	}
	return answer(w, showRegistry(reg))
}

func (c *Control) deleteRegistry(w http.ResponseWriter, r *http.Request) error {
	if err := c.registries.Delete(r.Context(), caller(r.Context()).Workspace, sandbox.RegistryID(r.PathValue("registry_id"))); err != nil {
		return err
	}
	return answer(w, struct {
		Success bool `json:"success"`
	}{true})
}
