package netrule_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/netrule"
	"github.com/modbox/modbox/internal/sandbox"
)

func parse(allow, deny []string) (*netrule.Rules, error) {
	return netrule.Parse(netrule.List{Field: "allow_out", Entries: allow}, netrule.List{Field: "deny_out", Entries: deny})
}

func mustParse(tb testing.TB, allow, deny []string) *netrule.Rules {
	tb.Helper()
	r, err := parse(allow, deny)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

var everything = []string{netrule.Everything}

func TestAddress(t *testing.T) {
	for _, tt := range []struct {
		allow, deny []string
		addr        string
		want        bool
	}{
		{nil, nil, "1.1.1.1", true},
		{nil, []string{"1.1.1.0/24"}, "1.1.1.1", false},
		{nil, []string{"1.1.1.0/24"}, "1.1.2.1", true},
		{nil, []string{"1.1.1.1"}, "1.1.1.1", false},
		{nil, []string{"1.1.1.1"}, "1.1.1.2", true},
		{nil, everything, "1.1.1.1", false},
		{[]string{"1.1.1.1"}, everything, "1.1.1.1", true},
		{[]string{"1.1.1.1"}, everything, "1.1.1.2", false},
		{[]string{"1.1.1.1/8"}, everything, "1.200.0.1", true},
		{[]string{"1.1.1.1"}, nil, "9.9.9.9", true},
		{[]string{"1.1.1.1"}, []string{"1.0.0.0/8"}, "1.1.1.1", true},
		{[]string{"1.1.1.0/25"}, []string{"1.1.1.0/24"}, "1.1.1.128", false},
		{[]string{"example.com"}, everything, "93.184.215.14", false},
		{nil, everything, "::1", true}, // no rule is about IPv6, which is closed for every sandbox
	} {
		if got := mustParse(t, tt.allow, tt.deny).Address(netip.MustParseAddr(tt.addr)); got != tt.want {
			t.Errorf("allow %v, deny %v: Address(%s) = %t, want %t", tt.allow, tt.deny, tt.addr, got, tt.want)
		}
	}
}

func TestName(t *testing.T) {
	r := mustParse(t, []string{"Example.com.", "*.example.org", "1.2.3.4", "xn--bcher-kva.de", "_dmarc.example.net", "localhost"}, everything)
	for name, want := range map[string]bool{
		"example.com": true, "EXAMPLE.com.": true, "www.example.com": false, "example.com.evil.org": false, "notexample.com": false,
		"a.example.org": true, "a.b.example.org.": true, "example.org": false, "aexample.org": false, "example.org.": false,
		`x\.example.org`: false, `x\.example.org.`: false, ".example.org": false, "..example.org": false, "a..example.org": false,
		"*.example.org": false, "a b.example.org": false, "": false, ".": false, "1.2.3.4": false, "bücher.de": false,
		"xn--bcher-kva.de": true, "_dmarc.example.net": true, "localhost": true, "com": false,
		strings.Repeat("a.", 130) + "example.org": false, strings.Repeat("a", 64) + ".example.org": false,
	} {
		if got := r.Name(name); got != want {
			t.Errorf("Name(%q) = %t, want %t", name, got, want)
		}
		if got := r.Resolves(name); got != want {
			t.Errorf("Resolves(%q) = %t, want %t", name, got, want)
		}
	}
	if open := mustParse(t, nil, []string{"1.1.1.1"}); open.Name("example.com") || !open.Resolves("example.com") {
		t.Error("rules without names: a name is allowed by name, or not resolved")
	}
	if open := mustParse(t, everything, everything); !open.Resolves("example.com") {
		t.Error("everything denied and everything allowed: a name is not resolved")
	}
	var none *netrule.Rules
	if none.Name("example.com") || !none.Resolves("example.com") || !none.Address(netip.MustParseAddr("1.1.1.1")) {
		t.Error("no rules: not everything is allowed by address, or names are not resolved")
	}
}

func TestEntries(t *testing.T) {
	r := mustParse(t, []string{"1.1.1.1", "8.8.8.8/24", "EXAMPLE.com", "example.com.", "8.8.8.0/24", "*.Example.com"}, []string{"9.9.9.9/32", netrule.Everything})
	if diff := cmp.Diff([]string{"1.1.1.1", "8.8.8.0/24", "example.com", "*.example.com"}, r.AllowOut()); diff != "" {
		t.Errorf("AllowOut() (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"9.9.9.9/32", netrule.Everything}, r.DenyOut()); diff != "" {
		t.Errorf("DenyOut() (-want +got):\n%s", diff)
	}
	again := mustParse(t, r.AllowOut(), r.DenyOut())
	if diff := cmp.Diff(r.AllowOut(), again.AllowOut()); diff != "" {
		t.Errorf("AllowOut() of the same entries (-want +got):\n%s", diff)
	}
}

func TestInvalid(t *testing.T) {
	long := slices.Repeat([]string{"1.1.1.1"}, netrule.EntriesMax+1)
	for _, tt := range []struct {
		allow, deny []string
		field       string
	}{
		{long, nil, "allow_out"},
		{nil, long, "deny_out"},
		{nil, []string{"1.1.1.1", "example.com"}, "deny_out[1]"},
		{nil, []string{"::/0"}, "deny_out[0]"},
		{[]string{"example.com"}, nil, "deny_out"},
		{[]string{"example.com"}, []string{"0.0.0.0/1", "128.0.0.0/1"}, "deny_out"},
		{[]string{"1.1.1.1", "::1"}, everything, "allow_out[1]"},
		{[]string{"2001:db8::/32"}, everything, "allow_out[0]"},
		{[]string{"::ffff:1.1.1.1"}, everything, "allow_out[0]"},
		{[]string{"https://example.com"}, everything, "allow_out[0]"},
		{[]string{"example.com:443"}, everything, "allow_out[0]"},
		{[]string{"example.com/path"}, everything, "allow_out[0]"},
		{[]string{"1.1.1"}, everything, "allow_out[0]"},
		{[]string{"1.1.1.256"}, everything, "allow_out[0]"},
		{[]string{"1.1.1.1/33"}, everything, "allow_out[0]"},
		{[]string{"*"}, everything, "allow_out[0]"},
		{[]string{"*."}, everything, "allow_out[0]"},
		{[]string{"*.*.example.com"}, everything, "allow_out[0]"},
		{[]string{"a*.example.com"}, everything, "allow_out[0]"},
		{[]string{"example..com"}, everything, "allow_out[0]"},
		{[]string{".example.com"}, everything, "allow_out[0]"},
		{[]string{"-a.example.com"}, everything, "allow_out[0]"},
		{[]string{"bücher.de"}, everything, "allow_out[0]"},
		{[]string{`a\.b.com`}, everything, "allow_out[0]"},
		{[]string{""}, everything, "allow_out[0]"},
		{[]string{"."}, everything, "allow_out[0]"},
		{[]string{strings.Repeat("a.", 127) + "com"}, everything, "allow_out[0]"},
		{[]string{strings.Repeat("a", 64) + ".com"}, everything, "allow_out[0]"},
	} {
		_, err := parse(tt.allow, tt.deny)
		var e *sandbox.Error
		if !errors.As(err, &e) || e.Code != sandbox.Invalid || e.Field != tt.field {
			t.Errorf("allow %.60q, deny %.60q: error %v, want invalid with field %s", tt.allow, tt.deny, err, tt.field)
		}
	}
}

// FuzzName compares the matcher with the meaning of the entries, label by label.
func FuzzName(f *testing.F) {
	f.Add("*.example.com", "a.b.example.com")
	f.Add("example.com", "EXAMPLE.com.")
	f.Add("*.a", `x\.a`)
	f.Fuzz(func(t *testing.T, entry, name string) {
		r, err := parse([]string{entry}, everything)
		if err != nil || !r.Name(name) {
			return
		}
		got := strings.Split(strings.ToLower(strings.TrimSuffix(name, ".")), ".")
		want := strings.Split(strings.ToLower(strings.TrimSuffix(entry, ".")), ".")
		if want[0] == "*" {
			want = want[1:]
			if len(got) <= len(want) {
				t.Fatalf("%q allows %q, which is not beneath it", entry, name)
			}
			got = got[len(got)-len(want):]
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%q allows %q", entry, name)
		}
	})
}

// FuzzParse looks for entries that are read as something else the second time.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"1.1.1.1", "1.2.3.4/8", "*.Example.com.", "a_b.c", "::1", "0x7f.1", "*", "1.1.1.1/032"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, entry string) {
		r, err := parse([]string{entry}, everything)
		if err != nil {
			return
		}
		again, err := parse(r.AllowOut(), r.DenyOut())
		if err != nil || !slices.Equal(again.AllowOut(), r.AllowOut()) {
			t.Fatalf("%q is read as %q, and that as %q, error %v", entry, r.AllowOut(), again.AllowOut(), err)
		}
	})
}
