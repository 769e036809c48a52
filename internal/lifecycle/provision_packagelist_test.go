package lifecycle_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/prepare"
	"github.com/modbox/modbox/internal/sandbox"
)

func checkAll(t *testing.T, s *server, names ...string) []prepare.PackageCheck {
	t.Helper()
	got, err := s.Prepare().CheckAptPackages(t.Context(), names)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestCheckAptPackages(t *testing.T) {
	e, calls := withTools(t, map[string]string{"apt-get": works, "apt-helper": `
printf 'Package: curl\nVersion: 8.14.1-2\nDescription: x\n\nPackage: curl\nVersion: 8.14.1-1\n\nVersion: 1\nPackage: jq\nVersion: 1.7\nVersion: 1.7\n'
`})
	s := e.start()
	want := []prepare.PackageCheck{
		{Name: "curl"}, {Name: "curl=8.14*"}, {Name: "curl=9", Reason: "there is no such version", Versions: []string{"8.14.1-2", "8.14.1-1", "1"}},
		{Name: "jq=1.7"}, {Name: "nosuch", Reason: "there is no such Debian package"}, {Name: "a b", Reason: "is not the name of a Debian package"},
	}
	for range 2 { // the second time from memory
		if diff := cmp.Diff(want, checkAll(t, s, "curl", "curl=8.14*", "curl=9", "jq=1.7", "nosuch", "a b")); diff != "" {
			t.Errorf("checks (-want +got):\n%s", diff)
		}
	}
	if got := calls(); len(got) != 2 {
		t.Errorf("calls %q, want one update and one list", got)
	}
	if ids, err := s.driver.List(t.Context()); err != nil || len(ids) != 0 {
		t.Errorf("boxes %v, %v, want none", ids, err)
	}
	_, err := s.Prepare().CheckAptPackages(t.Context(), make([]string, sandbox.PackagesMax+1))
	wantField(t, "too many", err, "apt_packages")
}

// TestCheckAptPackagesWithoutAList: while the mirrors do not answer the form
// alone is checked, and they are not asked for every request.
func TestCheckAptPackagesWithoutAList(t *testing.T) {
	e, calls := withTools(t, map[string]string{"apt-get": "echo no network; exit 100\n"})
	s := e.start()
	want := []prepare.PackageCheck{{Name: "nosuch"}, {Name: "a b", Reason: "is not the name of a Debian package"}}
	for range 3 {
		if diff := cmp.Diff(want, checkAll(t, s, "nosuch", "a b")); diff != "" {
			t.Errorf("checks (-want +got):\n%s", diff)
		}
	}
	if got := calls(); len(got) != 1 {
		t.Errorf("calls %q, want one update", got)
	}
}
