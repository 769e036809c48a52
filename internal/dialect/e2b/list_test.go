package e2b

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// TestPlaceInList has a sandbox from the pool, whose id is older than the id of a sandbox created before it.
func TestPlaceInList(t *testing.T) {
	warm := sandbox.NewID()
	now := time.Now()
	first := placeOf(&sandbox.Sandbox{ID: sandbox.NewID(), CreatedAt: now})
	second := placeOf(&sandbox.Sandbox{ID: warm, CreatedAt: now.Add(time.Nanosecond)})
	for _, ascending := range []bool{false, true} {
		sel := &selection{ascending: ascending}
		if got := sel.compare(first, second) < 0; got != ascending {
			t.Errorf("ascending %v: the first is before the second: %v", ascending, got)
		}
	}
	r := httptest.NewRequest("GET", "/v2/sandboxes?nextToken="+first.token(), nil)
	if sel, err := selectionOf(r); err != nil || sel.next != first {
		t.Errorf("the token %q is read as %+v, %v; want %+v", first.token(), sel.next, err, first)
	}
}
