// Package cache keeps a limited number of values for a limited time.
package cache

import (
	"errors"
	"time"

	"github.com/maypok86/otter/v2"
)

// Cache keeps values by their keys. Safe for concurrent use.
//
// The compiler generates a generic type anew in each package that imports a type with it, and
// otter's has about a thousand functions. So entries is an interface, and otter's type is generated
// in this package alone.
type Cache[K comparable, V any] struct{ entries entries }

// entries is a cache of otter.
type entries interface {
	// GetIfPresent returns the value of a key.
	GetIfPresent(key any) (any, bool)
	// Set sets the value of a key, and returns the former value.
	Set(key, value any) (any, bool)
	// SetIfAbsent sets the value of a key without value, and reports whether it did.
	SetIfAbsent(key, value any) (any, bool)
	// ComputeIfAbsent returns the value of a key, and makes it when there is none.
	ComputeIfAbsent(key any, value func() (any, bool)) (any, bool)
	// Invalidate removes and returns the value of a key.
	Invalidate(key any) (any, bool)
	// InvalidateAll removes all values.
	InvalidateAll()
	// StopAllGoroutines ends the work in the background.
	StopAllGoroutines() bool
}

// Options are the limits of a cache. Size and one of the times must be set.
type Options[V any] struct {
	Size        int           // the most values; the least useful is removed first
	AfterWrite  time.Duration // from the time when a value is set until it is removed
	AfterAccess time.Duration // from the last use of a value until it is removed
	OnRemove    func(V)       // runs in the background for each removed or replaced value; may be nil
}

// New returns an empty cache.
func New[K comparable, V any](o Options[V]) (*Cache[K, V], error) {
	var onRemove func(any)
	if o.OnRemove != nil {
		onRemove = func(value any) { o.OnRemove(as[V](value)) }
	}
	e, err := newEntries(o.Size, o.AfterWrite, o.AfterAccess, onRemove)
	if err != nil {
		return nil, err
	}
	return &Cache[K, V]{entries: e}, nil
}

//go:noinline // the packages that call New would generate otter's type
func newEntries(size int, afterWrite, afterAccess time.Duration, onRemove func(any)) (entries, error) {
	if size <= 0 || (afterWrite > 0) == (afterAccess > 0) {
		return nil, errors.New("a cache has a size and one time after which its values are removed")
	}
	o := &otter.Options[any, any]{MaximumSize: size}
	if afterWrite > 0 {
		o.ExpiryCalculator = otter.ExpiryWriting[any, any](afterWrite)
	} else {
		o.ExpiryCalculator = otter.ExpiryAccessing[any, any](afterAccess)
	}
	if onRemove != nil {
		o.OnDeletion = func(e otter.DeletionEvent[any, any]) { onRemove(e.Value) }
	}
	return otter.New(o)
}

// as returns the value, which is nil for none and for a nil of an interface type.
func as[V any](value any) V {
	v, _ := value.(V)
	return v
}

// Get returns the value of a key, and whether there is one.
func (c *Cache[K, V]) Get(key K) (V, bool) {
	value, ok := c.entries.GetIfPresent(key)
	return as[V](value), ok
}

// GetOrMake returns the value of a key, and makes it when there is none: once, also for concurrent
// callers. The function that makes it must not use the cache.
func (c *Cache[K, V]) GetOrMake(key K, value func() V) V {
	found, _ := c.entries.ComputeIfAbsent(key, func() (any, bool) { return value(), false })
	return as[V](found)
}

// Set sets the value of a key.
func (c *Cache[K, V]) Set(key K, value V) { c.entries.Set(key, value) }

// Add sets the value of a key that has none, and reports whether it had none.
func (c *Cache[K, V]) Add(key K, value V) bool {
	_, added := c.entries.SetIfAbsent(key, value)
	return added
}

// Take removes the value of a key and returns it, and whether there was one.
func (c *Cache[K, V]) Take(key K) (V, bool) {
	value, ok := c.entries.Invalidate(key)
	return as[V](value), ok
}

// Remove removes the value of a key.
func (c *Cache[K, V]) Remove(key K) { c.entries.Invalidate(key) }

// Clear removes all values.
func (c *Cache[K, V]) Clear() { c.entries.InvalidateAll() }

// Close ends the cache's work in the background. The cache must not be used afterwards.
func (c *Cache[K, V]) Close() { c.entries.StopAllGoroutines() }
