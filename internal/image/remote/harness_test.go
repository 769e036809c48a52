package remote_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	ociname "github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"

	"github.com/modbox/modbox/internal/image/remote"
	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
)

// client is a client of a server whose operator listed these registries.
func client(listed ...string) *remote.Client {
	return remote.New(remote.Options{InsecureRegistries: listed})
}

// pull resolves a reference and downloads the blobs of its image.
func pull(t *testing.T, c *remote.Client, ref string) error {
	t.Helper()
	parsed, err := ociname.ParseReference(ref)
	if err != nil {
		t.Fatal(err)
	}
	repo, err := c.Open(t.Context(), parsed.Context(), registry.Puller{}, remote.Pull)
	if err != nil {
		return err
	}
	target, err := repo.Resolve(t.Context(), parsed)
	if err != nil {
		return err
	}
	img, err := target.Image(t.Context())
	if err != nil {
		return err
	}
	downloads := remote.NewDownloads(t.TempDir(), 1<<30, slog.New(slog.DiscardHandler))
	for _, blob := range append(img.Manifest.Layers, img.Manifest.Config) {
		if err := download(t.Context(), downloads, repo, blob, filepath.Join(t.TempDir(), "blob")); err != nil {
			return err
		}
	}
	return nil
}

func download(ctx context.Context, d *remote.Downloads, repo *remote.Repository, blob v1.Descriptor, to string) error {
	part, err := d.Begin(ctx, repo, blob)
	if err != nil {
		return err
	}
	defer func() { _ = part.Close() }()
	return part.Complete(ctx, to, func(int64) {})
}

// randomImage is an image with one layer of random bytes.
func randomImage(t *testing.T, size int64) v1.Image {
	t.Helper()
	img, err := random.Image(size, 1)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func wantCode(t *testing.T, action string, err error, want sandbox.Code) {
	t.Helper()
	if got := sandbox.CodeOf(err); got != want {
		t.Errorf("%s: error %v has code %q, want %q", action, err, got, want)
	}
}
