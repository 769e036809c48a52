package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode"

	ociname "github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	ociremote "github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/modbox/modbox/internal/image/oci"
	"github.com/modbox/modbox/internal/image/reference"
	"github.com/modbox/modbox/internal/sandbox"
)

// Repository is a repository of a registry, signed in for one action. It is safe for concurrent
// use. Its errors have the codes of [Client.Open].
type Repository struct {
	repo      ociname.Repository
	transport http.RoundTripper
	proof     string
	action    Action
}

// Name returns the name of the repository in references of the store.
func (r *Repository) Name() string { return reference.RepositoryName(r.repo.Tag("")) }

// Proof identifies the workspace and the credentials that the registry accepted; "" for none.
func (r *Repository) Proof() string { return r.proof }

// Head returns the digest that a reference means now.
func (r *Repository) Head(ctx context.Context, ref ociname.Reference) (v1.Hash, error) {
	desc, err := ociremote.Head(ref, ociremote.WithContext(ctx), ociremote.WithTransport(r.transport))
	if err != nil {
		return v1.Hash{}, r.explain(ctx, err)
	}
	return desc.Digest, nil
}

// Target is the meaning of a reference: an image, or an index of images for several platforms.
type Target struct {
	repo *Repository
	desc *ociremote.Descriptor
}

// Resolve asks for the meaning of a reference.
func (r *Repository) Resolve(ctx context.Context, ref ociname.Reference) (*Target, error) {
	desc, err := ociremote.Get(ref, ociremote.WithContext(ctx), ociremote.WithTransport(r.transport), ociremote.WithPlatform(oci.Platform()))
	if err != nil {
		return nil, r.explain(ctx, err)
	}
	return &Target{r, desc}, nil
}

// Digest is the digest of the image or index.
func (t *Target) Digest() v1.Hash { return t.desc.Digest }

// Image returns the image for this host's platform, checked, without its configuration. Errors:
// also Unsupported for another kind or platform; TooLarge; Invalid.
func (t *Target) Image(ctx context.Context) (oci.Image, error) {
	name := t.repo.repo.String()
	if !t.desc.MediaType.IsImage() && !t.desc.MediaType.IsIndex() {
		return oci.Image{}, sandbox.Errorf(sandbox.Unsupported, "%s is not an image but %.100q", name, t.desc.MediaType)
	}
	if t.desc.MediaType.IsIndex() {
		index, err := v1.ParseIndexManifest(bytes.NewReader(t.desc.Manifest))
		if err != nil {
			return oci.Image{}, sandbox.Wrap(sandbox.Invalid, err, "the image's index cannot be read")
		}
		if want := oci.Platform(); !hasPlatform(index, want) {
			return oci.Image{}, sandbox.Errorf(sandbox.Unsupported, "%s has no image for linux/%s; it has %s", name, want.Architecture, oci.Platforms(index))
		}
	}
	img, err := t.desc.Image()
	if err != nil {
		return oci.Image{}, t.repo.explain(ctx, err)
	}
	raw, err := img.RawManifest()
	if err != nil {
		return oci.Image{}, t.repo.explain(ctx, err)
	}
	manifest, err := img.Manifest()
	if err != nil {
		return oci.Image{}, sandbox.Wrap(sandbox.Invalid, err, "the image's manifest cannot be read")
	}
	return oci.Image{Raw: raw, Manifest: manifest}, oci.CheckManifest(name, manifest)
}

func hasPlatform(index *v1.IndexManifest, want v1.Platform) bool {
	for _, m := range index.Manifests {
		if m.Platform == nil || m.Platform.Satisfies(want) {
			return true
		}
	}
	return false
}

// open requests a blob from an offset on. It returns the offset at which the answer begins: 0 for
// a registry that does not support offsets.
func (r *Repository) open(ctx context.Context, blob v1.Descriptor, offset int64) (io.ReadCloser, int64, error) {
	url := fmt.Sprintf("%s://%s/v2/%s/blobs/%s", r.repo.Scheme(), r.repo.RegistryStr(), r.repo.RepositoryStr(), blob.Digest)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, 0, err
	}
	if offset > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", offset, blob.Size-1))
	}
	resp, err := (&http.Client{Transport: r.transport}).Do(req)
	if err != nil {
		return nil, 0, err
	}
	if offset > 0 && resp.StatusCode == http.StatusRequestedRangeNotSatisfiable {
		resp.Body.Close()
		return r.open(ctx, blob, 0)
	}
	if err := transport.CheckError(resp, http.StatusOK, http.StatusPartialContent); err != nil {
		resp.Body.Close()
		return nil, 0, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, 0, nil
	}
	if got := resp.Header.Get("Content-Range"); !strings.HasPrefix(got, fmt.Sprintf("bytes %d-", offset)) {
		resp.Body.Close()
		return nil, 0, fmt.Errorf("it answers with the range %.100q, not from %d on", got, offset)
	}
	return resp.Body, offset, nil
}

// explain gives an error of the registry a code, and a message that helps the caller of the API.
func (r *Repository) explain(ctx context.Context, err error) error {
	host, repo := r.repo.RegistryStr(), r.repo.RepositoryStr()
	var answer *transport.Error
	switch {
	case err == nil || sandbox.CodeOf(err) != sandbox.Internal && sandbox.CodeOf(err) != "":
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errStalled):
		return unusable(host, err)
	case !errors.As(err, &answer):
		for _, closed := range refusals {
			if errors.Is(err, closed) { // before the client sent anything
				return sandbox.Wrap(sandbox.Unavailable, err, "the registry %s cannot be used: it %v", host, closed)
			}
		}
		return unusable(host, err)
	}
	words, do := registryWords(answer), "pull"
	if r.action == Push {
		do = "push"
	}
	switch answer.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return sandbox.Wrap(sandbox.Forbidden, err, "the registry %s does not let this server %s %s: it wants other credentials, or there is no such image (%s)", host, do, repo, words)
	case http.StatusNotFound:
		return sandbox.Wrap(sandbox.NotFound, err, "the registry %s has no such image in %s (%s)", host, repo, words)
	case http.StatusTooManyRequests:
		return sandbox.Wrap(sandbox.Unavailable, err, "the registry %s limits how much may be %sed; try again later, or with credentials (%s)", host, do, words)
	default:
		return sandbox.Wrap(sandbox.Unavailable, err, "the registry %s answers with status %d (%s)", host, answer.StatusCode, words)
	}
}

// unusable is the error for a host that does not answer as a registry. Its message is the same
// for a closed port, a host without an answer and another service, because callers could look
// for open ports with it.
func unusable(host string, err error) error {
	return sandbox.Wrap(sandbox.Unavailable, err, "the registry %s cannot be reached, or is none; check its name and port, and try again", host)
}

// registryWords returns the message of a registry as one short line.
func registryWords(answer *transport.Error) string {
	words := http.StatusText(answer.StatusCode)
	if len(answer.Errors) > 0 {
		words = fmt.Sprintf("%s: %s", answer.Errors[0].Code, answer.Errors[0].Message)
	}
	words = strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return ' '
		}
		return c
	}, words)
	return fmt.Sprintf("%.300s", words)
}
