package cache_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/cache"
)

func newCache[K comparable, V any](t *testing.T, o cache.Options[V]) *cache.Cache[K, V] {
	t.Helper()
	c, err := cache.New[K](o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestValues(t *testing.T) {
	type key struct{ a, b string }
	c := newCache[key, string](t, cache.Options[string]{Size: 10, AfterWrite: time.Hour})
	k := key{"a", "b"}
	if v, ok := c.Get(k); ok || v != "" {
		t.Errorf("a new cache has %q, %v", v, ok)
	}
	c.Set(k, "one")
	c.Set(k, "two")
	if v, ok := c.Get(key{"a", "b"}); !ok || v != "two" {
		t.Errorf("got %q, %v after two writes", v, ok)
	}
	if _, ok := c.Get(key{"b", "a"}); ok {
		t.Error("another key has a value")
	}
	if c.Add(k, "three") {
		t.Error("a key with a value got another one")
	}
	if v, ok := c.Take(k); !ok || v != "two" {
		t.Errorf("took %q, %v", v, ok)
	}
	if v, ok := c.Take(k); ok || v != "" {
		t.Errorf("took %q, %v a second time", v, ok)
	}
	if !c.Add(k, "four") {
		t.Error("a key without value got none")
	}
	c.Remove(k)
	c.Set(key{"c", ""}, "five")
	c.Clear()
	for _, k := range []key{k, {"c", ""}} {
		if v, ok := c.Get(k); ok {
			t.Errorf("a removed key has %q", v)
		}
	}
}

// A nil error is a value like any other.
func TestNilInterface(t *testing.T) {
	c := newCache[int, error](t, cache.Options[error]{Size: 10, AfterAccess: time.Hour})
	c.Set(1, nil)
	if err, ok := c.Get(1); !ok || err != nil {
		t.Errorf("got %v, %v", err, ok)
	}
}

func TestMadeOnce(t *testing.T) {
	c := newCache[string, *int](t, cache.Options[*int]{Size: 10, AfterAccess: time.Hour})
	var made int // the cache makes one value at a time
	var mu sync.Mutex
	found := map[*int]bool{}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			v := c.GetOrMake("key", func() *int { made++; return new(int) })
			mu.Lock()
			defer mu.Unlock()
			found[v] = true
		})
	}
	all.Wait()
	if made != 1 || len(found) != 1 {
		t.Errorf("made %d values, and %d were found", made, len(found))
	}
}

func TestLimits(t *testing.T) {
	removed := make(chan int, 1000)
	c := newCache[string, int](t, cache.Options[int]{Size: 10, AfterWrite: time.Hour, OnRemove: func(v int) { removed <- v }})
	for i := range 1000 {
		c.Set(fmt.Sprint(i), i)
	}
	for range 990 {
		<-removed
	}
	for _, o := range []cache.Options[int]{{Size: 10, AfterWrite: time.Millisecond}, {Size: 10, AfterAccess: time.Millisecond}} {
		c := newCache[string, int](t, o)
		c.Set("key", 1)
		for ok := true; ok; _, ok = c.Get("key") {
			time.Sleep(20 * time.Millisecond)
		}
	}
}

func TestBadOptions(t *testing.T) {
	for _, o := range []cache.Options[int]{{}, {Size: 10}, {AfterWrite: time.Hour}, {Size: 10, AfterWrite: time.Hour, AfterAccess: time.Hour}} {
		if _, err := cache.New[string](o); err == nil {
			t.Errorf("a cache has the options %+v", o)
		}
	}
}
