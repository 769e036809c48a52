package lifecycle_test

import "testing"

// TestEmptyForgetsImages: what a workspace has built does not outlive it.
func TestEmptyForgetsImages(t *testing.T) {
	e := newEnv(t)
	if err := e.start().Empty(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	e.images.mu.Lock()
	defer e.images.mu.Unlock()
	if e.images.forgotten != "gone" {
		t.Errorf("the images of %q were forgotten, want those of gone", e.images.forgotten)
	}
}
