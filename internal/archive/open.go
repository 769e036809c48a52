package archive

import (
	"context"

	"github.com/modbox/modbox/internal/ballast"
	"github.com/modbox/modbox/internal/object"
)

// Open opens the states in the bucket at a URL. keyFile has the key that encrypts them; "" for no encryption. create makes a new
// bucket's objects. Space is as for [New]. It returns the errors of [object.OpenWithKeyFile].
func Open(ctx context.Context, url, keyFile string, create bool, space *ballast.Budget) (*Store, error) {
	objects, err := object.OpenWithKeyFile(ctx, url, keyFile, object.Options{Create: create, Archives: true})
	if err != nil {
		return nil, err
	}
	return New(objects, space), nil
}
