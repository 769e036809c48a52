package image

import (
	"context"
	"fmt"
	"io"
	"sync"

	ociname "github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/image/reference"
	"github.com/modbox/modbox/internal/sandbox"
)

// Push sends an image that a workspace has built to a registry, under a reference
// with the registry's name. What the registry has already is not sent again. It
// signs in as for a pull. Progress, which may be nil, is told what happens and must
// return soon.
//
// Errors: Invalid, naming to; NotFound for the image; Forbidden when the registry
// wants other credentials; Timeout and Unavailable, with the registry's words.
func (s *Store) Push(ctx context.Context, who sandbox.Puller, ref, to string, progress func(phase.Event)) error {
	dest, err := ociname.NewTag(to, ociname.WithDefaultRegistry(reference.Local))
	if err != nil || !reference.WellFormed(dest) || dest.RegistryStr() == reference.Local || len(to) > sandbox.ImageRefMax {
		return sandbox.InvalidField("to", "%.100q does not name a registry, as registry.example.com/team/app:v1 does", to)
	}
	built, err := s.Built(ctx, who.Workspace, ref)
	if err != nil {
		return err
	}
	ix, err := s.loadIndex()
	if err != nil {
		return err
	}
	rec := ix.owned(who.Workspace, built.Ref())
	if rec == nil {
		return sandbox.Errorf(sandbox.NotFound, "the workspace has built no image %.100q", ref)
	}
	img, err := s.ociImage(rec)
	if err != nil {
		return err
	}
	reg, err := s.openRegistry(ctx, dest.Context(), who, transport.PushScope)
	if err != nil {
		return err
	}
	sent := &sending{Image: img, to: dest.Name(), progress: progress}
	err = remote.Write(reg.repo.Tag(dest.TagStr()), sent, remote.WithContext(ctx), remote.WithTransport(reg.transport))
	sent.end()
	if err != nil {
		return fmt.Errorf("push %s: %w", ref, reg.explain(ctx, err))
	}
	return nil
}

// sendingStep is how many bytes are sent until they are told.
const sendingStep = 1 << 20

// sending is an image that tells how much of its layers was read. The library's own
// progress must not be used: it panics when a layer is still being read once the push
// is over, as it may be over HTTP/2 when a registry answers early or the push ends.
type sending struct {
	v1.Image
	to       string
	progress func(phase.Event) // nil when it is over

	mu                sync.Mutex // guards progress and what follows
	done, told, total int64
}

// end returns when nothing is being told, and has nothing told from then on.
func (s *sending) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress = nil
}

// Layers implements [v1.Image].
func (s *sending) Layers() ([]v1.Layer, error) {
	layers, err := s.Image.Layers()
	if err != nil {
		return nil, err
	}
	all := make([]v1.Layer, len(layers))
	total := int64(0)
	for i, l := range layers {
		size, err := l.Size()
		if err != nil {
			return nil, err
		}
		total += size
		all[i] = sentLayer{l, s}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total = total
	return all, nil
}

// add counts bytes that were read to be sent.
func (s *sending) add(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = min(s.done+int64(n), s.total) // what has to be sent again counts no more
	if s.progress == nil || s.done == s.told || s.done-s.told < sendingStep && s.done < s.total {
		return
	}
	s.told = s.done
	s.progress(phase.Event{Phase: phase.Pushing, Done: s.done, Total: s.total, Message: "to " + s.to})
}

type sentLayer struct {
	v1.Layer
	image *sending
}

// Compressed implements [v1.Layer].
func (l sentLayer) Compressed() (io.ReadCloser, error) {
	rc, err := l.Layer.Compressed()
	if err != nil {
		return nil, err
	}
	return sentReader{rc, l.image}, nil
}

type sentReader struct {
	io.ReadCloser
	image *sending
}

func (r sentReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.image.add(n)
	return n, err
}
