package object

import (
	"context"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// Lazy opens a store when it is first used. It is safe for concurrent use.
type Lazy struct {
	url, keyFile string
	used         func(context.Context) (bool, error)
	opening      chan struct{} // has an element while nobody opens the store

	mu    sync.Mutex
	store *Store // once it is open; guarded by mu
}

// NewLazy returns the store in the bucket at a URL, with the key in a file, see [OpenWithKeyFile]. Used reports whether anything was stored in it: then
// a missing store is an error, because a directory may not be mounted.
func NewLazy(url, keyFile string, used func(context.Context) (bool, error)) *Lazy {
	l := &Lazy{url: url, keyFile: keyFile, used: used, opening: make(chan struct{}, 1)}
	l.opening <- struct{}{}
	return l
}

// Open returns the store. With create it makes the store if nothing was stored yet. Errors: of [OpenWithKeyFile].
func (l *Lazy) Open(ctx context.Context, create bool) (*Store, error) {
	return l.open(ctx, create, patience)
}

// Within returns the store for readers who wait: it repeats a request that fails for so long at most. Errors: of [OpenWithKeyFile].
func (l *Lazy) Within(ctx context.Context, d time.Duration) (*Store, error) {
	opening, cancel := context.WithTimeoutCause(ctx, d, sandbox.Errorf(sandbox.Unavailable, "the bucket does not answer"))
	defer cancel()
	s, err := l.open(opening, false, d)
	if err != nil {
		return nil, err
	}
	return s.within(d), nil
}

// within returns the store with a patience. Less patience than an attempt takes without an answer makes attempts shorter.
func (s *Store) within(d time.Duration) *Store {
	other := *s
	other.o.Patience, other.o.answer = d, min(answer, d)
	return &other
}

func (l *Lazy) open(ctx context.Context, create bool, d time.Duration) (*Store, error) {
	if s := l.opened(); s != nil {
		return s, nil
	}
	select {
	case <-l.opening:
		defer func() { l.opening <- struct{}{} }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if s := l.opened(); s != nil {
		return s, nil
	}
	used, err := l.used(ctx)
	if err != nil {
		return nil, err
	}
	s, err := OpenWithKeyFile(ctx, l.url, l.keyFile, Options{Create: create && !used, Patience: d})
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.store = s.within(patience)
	return l.store, nil
}

func (l *Lazy) opened() *Store {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.store
}

// Close closes the store if it is open, after its last use.
func (l *Lazy) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.store
	if l.store = nil; s == nil {
		return nil
	}
	return s.Close()
}
