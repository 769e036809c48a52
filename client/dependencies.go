package client

import (
	"context"
	"net/http"
)

// DependencyChecks says which Debian packages can be installed.
type DependencyChecks struct {
	Valid   []string            `json:"valid"`
	Invalid []InvalidDependency `json:"invalid"`
}

// InvalidDependency is a Debian package that cannot be installed.
type InvalidDependency struct {
	Name     string   `json:"name"`
	Reason   string   `json:"reason"`
	Versions []string `json:"versions,omitempty"` // those there are, when only the version is wrong
}

// ValidateDependencies checks whether Debian packages, written as in
// CreateOptions.Dependencies, can be installed in an image, "" for modbox/base. It
// may take some seconds. Errors: Invalid; Unsupported; Unavailable.
func (c *Client) ValidateDependencies(ctx context.Context, image string, dependencies []string) (*DependencyChecks, error) {
	body := struct {
		Image        string   `json:"image,omitempty"`
		Dependencies []string `json:"dependencies"`
	}{image, dependencies}
	checks := new(DependencyChecks)
	return result(checks, c.call(ctx, request{method: http.MethodPost, path: "/v1/dependencies/validate", body: body, repeat: true}, checks))
}
