package agentuity

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
)

// cli has the handlers for Agentuity's command line.
type cli struct {
	*finder
	svc *lifecycle.Service
}

func (h *cli) register(m routes) {
	m.add("GET /cli/sandbox", byCode, h.list)
	m.add("GET /cli/sandbox/{id}", byCode, h.get)
	m.add("GET /cli/region", byCode, h.regions)
	m.add("GET /cli/organization", byCode, h.organizations)
	// It needs no token.
	m.add("POST /cli/validate/apt-dependencies", byCode, h.validateAptPackages)
}

// cliInfo is the description of a sandbox that the command line requests first.
type cliInfo struct {
	ID          string  `json:"id"`
	Name        *string `json:"name"`
	Description *string `json:"description"`
	Status      string  `json:"status"`
	Region      string  `json:"region"`
	CreatedAt   string  `json:"createdAt"`
	OrgID       string  `json:"orgId"`
	OrgName     string  `json:"orgName"`
	ProjectID   *string `json:"projectId"`
}

// region is the only region.
const region = "local"

func (h *cli) regions(w http.ResponseWriter, _ *http.Request) error {
	return answer(w, []struct {
		Region      string `json:"region"`
		Description string `json:"description"`
	}{{region, "This server"}})
}

// organizations returns the workspace that the caller acts in.
func (h *cli) organizations(w http.ResponseWriter, r *http.Request) error {
	return answer(w, []ref{org(caller(r.Context()).Workspace)})
}

func cliInfoOf(l *look) cliInfo {
	o := org(l.Workspace)
	return cliInfo{
		ID: sandboxID(l.ID), Name: optional(l.Labels[labelName]), Description: optional(l.Description), Status: l.status(), Region: region,
		CreatedAt: timestamp(l.CreatedAt), OrgID: o.ID, OrgName: o.Name, ProjectID: optional(l.Labels[labelProject]),
	}
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func (h *cli) list(w http.ResponseWriter, r *http.Request) error {
	part, total, err := h.selected(r)
	if err != nil {
		return err
	}
	out := struct {
		Sandboxes []cliInfo `json:"sandboxes"`
		Total     int       `json:"total"`
	}{make([]cliInfo, len(part)), total}
	for i := range part {
		out.Sandboxes[i] = cliInfoOf(&part[i])
	}
	return answer(w, out)
}

func (h *cli) get(w http.ResponseWriter, r *http.Request) error {
	sb, err := h.any(r)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return &typed{codeNotFound, http.StatusNotFound, err}
	}
	if err != nil {
		return err
	}
	l, err := h.look(r.Context(), sb)
	if err != nil {
		return err
	}
	return answer(w, cliInfoOf(&l))
}

// validationMax bounds the body of a validation, which is open to anonymous clients.
const validationMax = 64 << 10

// validateAptPackages returns which Debian packages cannot be installed. The command line does not
// authenticate for it.
func (h *cli) validateAptPackages(w http.ResponseWriter, r *http.Request) error {
	in, err := decodeMax[struct {
		Packages []string `json:"packages"`
	}](w, r, validationMax)
	if err != nil {
		return err
	}
	checks, err := h.svc.Prepare().CheckAptPackages(r.Context(), in.Packages)
	if err != nil {
		return err
	}
	type invalid struct {
		Package           string   `json:"package"`
		Error             string   `json:"error"`
		RequestedVersion  string   `json:"requestedVersion,omitempty"`
		AvailableVersions []string `json:"availableVersions,omitempty"`
		SearchURL         string   `json:"searchUrl"`
	}
	out := struct {
		Valid   []string  `json:"valid"`
		Invalid []invalid `json:"invalid"`
	}{[]string{}, []invalid{}}
	for _, c := range checks {
		if c.Reason == "" {
			out.Valid = append(out.Valid, c.Name)
			continue
		}
		name, version, _ := strings.Cut(c.Name, "=")
		out.Invalid = append(out.Invalid, invalid{
			c.Name, c.Reason, version, c.Versions, "https://packages.debian.org/search?keywords=" + url.QueryEscape(name),
		})
	}
	return answer(w, out)
}
