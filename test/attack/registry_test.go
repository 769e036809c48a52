package attack_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"sync/atomic"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// layerFiles is how many empty files the attacker's layer has: 8 MiB of it arrive.
const layerFiles = 1 << 20

// pullEmptyFiles pulls a layer of empty files again and again, each time as another
// repository's, from a registry on this host.
func pullEmptyFiles(ctx context.Context, r *rig, n *atomic.Int64) {
	srv := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer srv.Close()
	i := 0
	until(ctx, n, func() error {
		i++
		ref, err := name.ParseReference(fmt.Sprintf("%s/r%d/app:latest", strings.TrimPrefix(srv.URL, "http://"), i))
		if err != nil {
			return err
		}
		if err := remote.Write(ref, r.emptyFiles); err != nil {
			r.t.Error(err)
			return err
		}
		_, err = r.attacker.Images.Pull(ctx, ref.Name(), nil)
		return err
	})
}

// emptyFilesImage returns an image of one layer with layerFiles files in directories of a thousand.
func emptyFilesImage() (v1.Image, error) {
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(z)
	for i := range layerFiles {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("d%d/f%d", i/1000, i), Mode: 0o644}); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed.Bytes())), nil })
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(empty.Image, layer)
}
