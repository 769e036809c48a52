package lifecycle_test

import (
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/lifecycle"
)

func TestNoSnapshotOfThatTag(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	for ref, tells := range map[string]bool{
		"a": true, "@team/a": true, "a:v1": false, "a:latest": false, "a b": false, "01a2010b-3b1a-75ca-add9-7237303daf0a": false,
	} {
		_, err := s.Snapshots().Get(t.Context(), e.caller, ref)
		if err == nil || strings.HasSuffix(err.Error(), "means its tag latest") != tells {
			t.Errorf("Snapshot(%q) = %v, want it to say that latest is meant: %t", ref, err, tells)
		}
		_, _, err = s.Create(t.Context(), e.caller, lifecycle.CreateRequest{Snapshot: ref})
		if err == nil || strings.HasSuffix(err.Error(), "means its tag latest") != tells {
			t.Errorf("Create of %q = %v, want it to say that latest is meant: %t", ref, err, tells)
		}
	}
}
