package proxy_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/proxy"
	"github.com/modbox/modbox/internal/sandbox"
)

func urls(t testing.TB, public, domain string) proxy.URLs {
	t.Helper()
	u, err := proxy.NewURLs(public, domain)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestSandboxURL(t *testing.T) {
	for _, tc := range []struct{ public, domain, want string }{
		{"http://127.0.0.1:8080", "", "http://127.0.0.1:8080/s/demo-abc"},
		{"https://modbox.example.com/", "", "https://modbox.example.com/s/demo-abc"},
		{"https://modbox.example.com", "box.example.com", "https://demo-abc.box.example.com"},
		{"https://modbox.example.com:8443", "Box.Example.com.", "https://demo-abc.box.example.com:8443"},
	} {
		if got := urls(t, tc.public, tc.domain).Sandbox("demo-abc"); got != tc.want {
			t.Errorf("Sandbox with %s and %q = %s, want %s", tc.public, tc.domain, got, tc.want)
		}
	}
}

func TestPages(t *testing.T) {
	for _, tc := range []struct{ public, domain, want string }{
		{"http://127.0.0.1:8080", "", "http://*.localhost:8080"},
		{"https://modbox.example.com", "", ""},
		{"http://modbox.example.com", "", ""},
		{"https://modbox.example.com", "box.example.com", "https://*.box.example.com"},
		{"https://modbox.example.com:8443", "Box.Example.com.", "https://*.box.example.com:8443"},
	} {
		if got := urls(t, tc.public, tc.domain).Pages(); got != tc.want {
			t.Errorf("Pages with %s and %q = %q, want %q", tc.public, tc.domain, got, tc.want)
		}
	}
}

func TestNewURLsRefuses(t *testing.T) {
	for _, tc := range []struct{ public, domain string }{
		{"ftp://x", ""}, {"http://", ""}, {"http://x/path", ""}, {"http://x?q", ""}, {"http://u@x", ""}, {"::", ""},
		{"http://x", "a b"}, {"http://x", "a..b"}, {"http://x", "-a.b"},
	} {
		if _, err := proxy.NewURLs(tc.public, tc.domain); err == nil {
			t.Errorf("NewURLs(%q, %q) succeeded", tc.public, tc.domain)
		}
	}
}

func TestParseLocalhost(t *testing.T) {
	for _, tc := range []struct {
		public, domain, host string
		label                string
		ours                 bool
	}{
		{"http://127.0.0.1:7070", "", "demo-abc.localhost:7070", "demo-abc", true},
		{"http://[::1]:7070", "", "Demo-abc.LOCALHOST.", "demo-abc", true},
		{"http://localhost", "", "demo-abc.localhost", "demo-abc", true},
		{"http://127.0.0.1:7070", "", "a.b.localhost", "", true},
		// The server's own.
		{"http://127.0.0.1:7070", "", "localhost:7070", "", false},
		{"http://127.0.0.1:7070", "", "evillocalhost", "", false},
		{"http://127.0.0.1:7070", "box.example.com", "demo-abc.localhost", "", false},
		{"http://10.0.0.1:7070", "", "demo-abc.localhost", "", false},
		{"http://modbox.localhost:7070", "", "modbox.localhost:7070", "", false},
		{"https://127.0.0.1:7070", "", "demo-abc.localhost", "", false}, // no certificate is for these names
	} {
		got, ours, ok := urls(t, tc.public, tc.domain).Parse(tc.host, "/x")
		if got.Label != tc.label || ours != tc.ours || ok != (tc.label != "") {
			t.Errorf("Parse(%q) at %s with domain %q = %+v, %v, %v, want label %q", tc.host, tc.public, tc.domain, got, ours, ok, tc.label)
		}
	}
}

func TestParse(t *testing.T) {
	type result struct {
		T        proxy.Target
		Ours, OK bool
	}
	u := urls(t, "https://example.com", "box.example.com")
	for _, tc := range []struct {
		host, path string
		want       result
	}{
		{"demo-abc.box.example.com", "/x", result{proxy.Target{Label: "demo-abc"}, true, true}},
		{"DEMO-abc.Box.example.com:8443", "/", result{proxy.Target{Label: "demo-abc"}, true, true}},
		{"demo.box.example.com.", "/", result{proxy.Target{Label: "demo"}, true, true}},
		{"3000--demo.box.example.com", "/", result{proxy.Target{Label: "demo", Port: 3000}, true, true}},
		{"example.com", "/s/demo/x", result{proxy.Target{Label: "demo", Prefix: "/s/demo"}, true, true}},
		{"example.com", "/s/demo", result{proxy.Target{Label: "demo", Prefix: "/s/demo"}, true, true}},
		{"127.0.0.1:80", "/s/3000--demo/", result{proxy.Target{Label: "demo", Port: 3000, Prefix: "/s/3000--demo"}, true, true}},

		// The server's own.
		{"example.com", "/v1/sandboxes", result{}},
		{"box.example.com", "/", result{}},
		{"evilbox.example.com", "/", result{}},
		{"example.com", "/s", result{}},

		// A sandbox's in form, but none's.
		{"a.b.box.example.com", "/v1", result{Ours: true}},
		{".box.example.com", "/v1", result{Ours: true}},
		{"0--demo.box.example.com", "/", result{Ours: true}},
		{"65536--demo.box.example.com", "/", result{Ours: true}},
		{"080--demo.box.example.com", "/", result{Ours: true}},
		{"+80--demo.box.example.com", "/", result{Ours: true}},
		{"80--80--demo.box.example.com", "/", result{Ours: true}},
		{"de_mo.box.example.com", "/", result{Ours: true}},
		{"example.com", "/s/", result{proxy.Target{Prefix: "/s/"}, true, false}},
		{"example.com", "/s/de%6Do/", result{proxy.Target{Prefix: "/s/de%6Do"}, true, false}},
		{"example.com", "/s/../v1", result{proxy.Target{Prefix: "/s/.."}, true, false}},
	} {
		var got result
		got.T, got.Ours, got.OK = u.Parse(tc.host, tc.path)
		if d := cmp.Diff(tc.want, got); d != "" {
			t.Errorf("Parse(%q, %q) (-want +got):\n%s", tc.host, tc.path, d)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("demo.box.example.com", "/")
	f.Add("3000--demo.box.example.com:80", "/s/x")
	f.Add("example.com", "/s/65535--a-b/x%2Fy")
	f.Add("[::1]:80", "/s/-a")
	u := urls(f, "https://example.com", "box.example.com")
	f.Fuzz(func(t *testing.T, host, path string) {
		got, ours, ok := u.Parse(host, path)
		if ok && !ours {
			t.Fatalf("Parse(%q, %q): ok but not ours", host, path)
		}
		if !ok {
			return
		}
		if len(got.Label) > 63 || strings.ContainsAny(got.Label, "/.:%@ \x00") || strings.Contains(got.Label, "--") {
			t.Fatalf("Parse(%q, %q): label %q", host, path, got.Label)
		}
		if got.Prefix != "" && !strings.HasPrefix(path, got.Prefix) {
			t.Fatalf("Parse(%q, %q): prefix %q", host, path, got.Prefix)
		}
	})
}

func TestEveryHostLabelParses(t *testing.T) {
	u := urls(t, "https://example.com", "box.example.com")
	for _, name := range []string{"", "a", "--", "a--b", "Ünïcode", strings.Repeat("x", 300), "3000--x", "-", "pr-1/../../x"} {
		label := sandbox.HostLabel(name)
		got, ours, ok := u.Parse(label+".box.example.com", "/")
		if !ours || !ok || got.Label != label || got.Port != 0 {
			t.Errorf("label %q of name %q: Parse = %+v, %v, %v", label, name, got, ours, ok)
		}
	}
}
