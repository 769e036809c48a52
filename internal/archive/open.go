package archive

import (
	"context"

	"github.com/modbox/modbox/internal/object"
)

// Open opens the states in the bucket at a URL. keyFile has the key that encrypts them; "" for no encryption. create makes a new
// bucket's objects. It returns the errors of [object.Open].
func Open(ctx context.Context, url, keyFile string, create bool) (*Store, error) {
	o := object.Options{Create: create, Archives: true}
	if keyFile != "" {
		key, err := object.ReadKey(keyFile)
		if err != nil {
			return nil, err
		}
		o.Key = key
	}
	objects, err := object.Open(ctx, url, o)
	if err != nil {
		return nil, err
	}
	return New(objects), nil
}
