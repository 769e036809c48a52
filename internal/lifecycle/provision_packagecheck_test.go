package lifecycle_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modbox/modbox/internal/prepare"
	"github.com/modbox/modbox/internal/sandbox"
)

func TestValidateAptPackages(t *testing.T) {
	e, calls := withTools(t, map[string]string{"apt-get": works, "apt-cache": `
echo '      curl | 8.14.1-2 | http://deb.test trixie/main amd64 Packages'
echo '      curl | 8.14.1-1 | http://deb.test trixie/main amd64 Packages'
echo 'N: Unable to locate package nosuch' >&2
echo garbage
exit 100
`})
	s := e.start()
	validate := func(names ...string) []prepare.PackageCheck {
		t.Helper()
		got, err := s.Prepare().ValidateAptPackages(t.Context(), e.caller, "", names)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	want := []prepare.PackageCheck{
		{Name: "curl"}, {Name: "curl=8.14*"}, {Name: "curl=9", Reason: "there is no such version", Versions: []string{"8.14.1-2", "8.14.1-1"}},
		{Name: "nosuch", Reason: "there is no such Debian package"}, {Name: "a b", Reason: "is not the name of a Debian package"},
	}
	for range 2 { // the second time from memory
		if diff := cmp.Diff(want, validate("curl", "curl=8.14*", "curl=9", "nosuch", "a b")); diff != "" {
			t.Errorf("checks (-want +got):\n%s", diff)
		}
	}
	if got := calls(); len(got) != 2 || got[1] != "apt-cache madison -- curl curl curl nosuch" {
		t.Errorf("calls %q, want one update and one question", got)
	}
	if ids, err := s.driver.List(t.Context()); err != nil || len(ids) != 0 {
		t.Errorf("boxes %v, %v, want none", ids, err)
	}
	_, err := s.Prepare().ValidateAptPackages(t.Context(), e.caller, "no/such", []string{"curl"})
	wantField(t, "unknown image", err, "image")
	_, err = s.Prepare().ValidateAptPackages(t.Context(), e.caller, "", make([]string, sandbox.PackagesMax+1))
	wantField(t, "too many", err, "apt_packages")
}
