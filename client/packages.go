package client

import (
	"context"
	"net/http"
)

// AptPackageChecks says which Debian packages can be installed.
type AptPackageChecks struct {
	Valid   []string            `json:"valid"`
	Invalid []InvalidAptPackage `json:"invalid"`
}

// InvalidAptPackage is a Debian package that cannot be installed.
type InvalidAptPackage struct {
	Name     string   `json:"name"`
	Reason   string   `json:"reason"`
	Versions []string `json:"versions,omitempty"` // those there are, when only the version is wrong
}

// ValidateAptPackages checks whether Debian packages, written as in
// CreateOptions.AptPackages, can be installed in an image, "" for modbox/base. It
// may take some seconds. Errors: Invalid; Unsupported; Unavailable.
func (c *Client) ValidateAptPackages(ctx context.Context, image string, packages []string) (*AptPackageChecks, error) {
	body := struct {
		Image       string   `json:"image,omitempty"`
		AptPackages []string `json:"apt_packages"`
	}{image, packages}
	checks := new(AptPackageChecks)
	return result(checks, c.call(ctx, request{method: http.MethodPost, path: "/v1/apt-packages/validate", body: body, repeat: true}, checks))
}
