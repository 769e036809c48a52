package remote

import (
	"context"
	"io"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	ociremote "github.com/google/go-containerregistry/pkg/v1/remote"
)

// Push sends an image to the repository under a tag, without the blobs that the registry has
// already. It reports the bytes of layers to progress, which may be nil and must return soon; it
// does not call progress after its return.
func (r *Repository) Push(ctx context.Context, tag string, img v1.Image, progress func(done, total int64)) error {
	sent := &sending{Image: img, progress: progress}
	err := ociremote.Write(r.repo.Tag(tag), sent, ociremote.WithContext(ctx), ociremote.WithTransport(r.transport))
	sent.end()
	return r.explain(ctx, err)
}

// sendingStep is the number of bytes between two reports.
const sendingStep = 1 << 20

// sending is an image that reports how many bytes of its layers were read. The progress of the
// library panics when a layer is still read after the end of the push, which happens over HTTP/2
// when a registry answers early or the push is cancelled.
type sending struct {
	v1.Image

	mu                    sync.Mutex
	progress              func(done, total int64) // nil after the end; guarded by mu
	done, reported, total int64                   // guarded by mu
	reporting             chan struct{}           // closed when the reports that are being made are complete; nil without any; guarded by mu
}

// end waits for the report that is being made, and prevents further reports.
func (s *sending) end() {
	s.mu.Lock()
	s.progress = nil
	reporting := s.reporting
	s.mu.Unlock()
	if reporting != nil {
		<-reporting
	}
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

// add counts bytes that were read to be sent. Reports are made in order and without the lock: while one is made, the other layers are
// read on, and what they add is in the next report of the same call.
func (s *sending) add(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = min(s.done+int64(n), s.total) // a layer that is sent again does not count again
	if s.reporting != nil || !s.due() {
		return
	}
	reporting := make(chan struct{})
	s.reporting = reporting
	for s.due() {
		s.reported = s.done
		progress, done, total := s.progress, s.done, s.total
		s.mu.Unlock()
		progress(done, total)
		s.mu.Lock()
	}
	s.reporting = nil
	close(reporting)
}

// due tells whether there is something to report. The caller has the lock.
func (s *sending) due() bool {
	return s.progress != nil && s.done != s.reported && (s.done-s.reported >= sendingStep || s.done >= s.total)
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
