package interpreter

import (
	"context"
	"crypto/rand"
	"net/http"
	"slices"
	"strings"

	"github.com/modbox/modbox/internal/kernelapi"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	python     = "python"
	javascript = "javascript"
	// defaultID begins the ids of the contexts of code that names none. They are not the default
	// contexts of /v1, which begin in the working directory of the image.
	defaultID = "e2b-"
	// defaultCwd is the directory of files with relative paths, and of commands.
	defaultCwd = "/home/user"
)

// contextInfo describes a context.
type contextInfo struct {
	ID       string `json:"id"`
	Language string `json:"language"`
	Cwd      string `json:"cwd"`
}

func contextInfoOf(c *kernelapi.Context) contextInfo { return contextInfo{c.ID, c.Language, c.Cwd} }

func (s *Server) list(w http.ResponseWriter, r *http.Request, v *visit) error {
	all, err := s.code.List(r.Context(), v.caller, v.ref)
	if err != nil {
		return err
	}
	out := []contextInfo{}
	var cwd string
	for _, language := range []string{python, javascript} { // they exist from the start for the clients
		if slices.ContainsFunc(all, func(c kernelapi.Context) bool { return c.ID == defaultID+language }) {
			continue
		}
		if cwd == "" {
			if cwd, err = s.directory(r.Context(), v); err != nil {
				return err
			}
		}
		out = append(out, contextInfo{defaultID + language, language, cwd})
	}
	for i := range all {
		if all[i].ID != all[i].Language { // otherwise it is a default context of /v1
			out = append(out, contextInfoOf(&all[i]))
		}
	}
	return answer(w, out)
}

func (s *Server) create(w http.ResponseWriter, r *http.Request, v *visit) error {
	in, err := decode[struct {
		Language string `json:"language"`
		Cwd      string `json:"cwd"`
	}](w, r)
	if err != nil {
		return err
	}
	c, err := s.begin(r.Context(), v, kernelapi.ContextSpec{ID: strings.ToLower(rand.Text()), Language: languageOf(in.Language), Cwd: in.Cwd})
	if err != nil {
		return err
	}
	return answer(w, contextInfoOf(&c))
}

func (s *Server) restart(w http.ResponseWriter, r *http.Request, v *visit) error {
	id := r.PathValue("id")
	if _, err := s.ensure(r.Context(), v, id); err != nil {
		return err
	}
	if _, err := s.code.Restart(r.Context(), v.caller, v.ref, id); err != nil {
		return err
	}
	return answer(w, nil)
}

func (s *Server) remove(w http.ResponseWriter, r *http.Request, v *visit) error {
	id := r.PathValue("id")
	if _, err := s.ensure(r.Context(), v, id); err != nil {
		return err
	}
	if err := s.code.Delete(r.Context(), v.caller, v.ref, id); err != nil {
		return err
	}
	return answer(w, nil)
}

// begin makes a context, by default in the directory of commands. An image that has no such directory has its working
// directory instead.
func (s *Server) begin(ctx context.Context, v *visit, spec kernelapi.ContextSpec) (kernelapi.Context, error) {
	if spec.Cwd != "" {
		return s.code.Create(ctx, v.caller, v.ref, spec)
	}
	spec.Cwd = defaultCwd
	c, err := s.code.Create(ctx, v.caller, v.ref, spec)
	if isAbout(err, fieldCwd) {
		spec.Cwd = ""
		c, err = s.code.Create(ctx, v.caller, v.ref, spec)
	}
	return c, err
}

// directory returns the directory in which begin makes a context by default.
func (s *Server) directory(ctx context.Context, v *visit) (string, error) {
	_, err := s.files.ListDir(ctx, v.caller, v.ref, defaultCwd, "", 1) // which follows symlinks, as the supervisor does
	switch sandbox.CodeOf(err) {
	case "":
		return defaultCwd, nil
	case sandbox.FileNotFound, sandbox.Conflict: // nothing, or no directory
		info, err := s.files.Stat(ctx, v.caller, v.ref, ".")
		return info.Path, err
	}
	return "", err
}

// ensure returns the context with an id. It makes a default context that is missing. Errors: NotFound.
func (s *Server) ensure(ctx context.Context, v *visit, id string) (kernelapi.Context, error) {
	if language, ok := strings.CutPrefix(id, defaultID); ok {
		// The supervisor answers with the context that exists.
		return s.begin(ctx, v, kernelapi.ContextSpec{ID: id, Language: language})
	}
	all, err := s.code.List(ctx, v.caller, v.ref)
	if err != nil {
		return kernelapi.Context{}, err
	}
	for _, c := range all {
		if c.ID == id {
			return c, nil
		}
	}
	return kernelapi.Context{}, sandbox.Errorf(sandbox.NotFound, "Context %s not found", sandbox.OneLine(id))
}
