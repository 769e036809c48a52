package client

import (
	"context"
	"net/http"

	"github.com/modbox/modbox/client/wire"
)

// AptPackageChecks report which Debian packages can be installed.
type AptPackageChecks = wire.ValidatedAptPackages

// InvalidAptPackage is a Debian package that cannot be installed.
type InvalidAptPackage = wire.InvalidAptPackage

// ValidateAptPackages checks whether Debian packages, written as in CreateOptions.AptPackages, can be
// installed in an image, "" for modbox/base. It may take some seconds. Errors: Invalid; Unsupported; Unavailable.
func (c *Images) ValidateAptPackages(ctx context.Context, image string, packages []string) (*AptPackageChecks, error) {
	body := wire.ValidateAptPackages{Image: image, AptPackages: packages}
	return fetch[AptPackageChecks](ctx, c.transport, request{method: http.MethodPost, path: "/v1/apt-packages/validate", body: body, repeat: true})
}
