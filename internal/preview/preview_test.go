package preview_test

import (
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modbox/modbox/internal/preview"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/secret"
)

func keys(t testing.TB) *secret.Keys {
	t.Helper()
	k, err := secret.Open(filepath.Join(t.TempDir(), "secret.key"), "")
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func port(number uint16) sandbox.PublishedPort {
	return sandbox.PublishedPort{Port: number, Label: sandbox.PortLabel(number), Access: sandbox.PortPrivate}
}

func TestLinksAreForOneURL(t *testing.T) {
	k := keys(t)
	l := preview.New(k)
	id, p := sandbox.NewID(), port(3000)
	expires := time.Now().Add(time.Hour).Truncate(time.Second)
	grant := preview.Grant{Maker: preview.Maker{User: "ada", Token: "t-1"}, Expires: expires}
	token, err := l.Sign(preview.Link, id, p, grant)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := l.Check(preview.Link, token, id, p); err != nil || !got.Expires.Equal(expires) || got.Maker != grant.Maker {
		t.Errorf("Check() = %v, %v, want %v", got, err, grant)
	}
	signedIn := preview.Grant{Maker: preview.Maker{User: "ada"}, Expires: expires}
	if byUser, err := l.Sign(preview.Link, id, p, signedIn); err != nil {
		t.Error(err)
	} else if got, err := l.Check(preview.Link, byUser, id, p); err != nil || got.Maker != signedIn.Maker {
		t.Errorf("Check() of a link without a token = %v, %v, want %v", got, err, signedIn)
	}
	if _, err := l.Sign(preview.Link, id, p, preview.Grant{Maker: preview.Maker{User: sandbox.UserID(strings.Repeat("a", 300))}}); err == nil {
		t.Error("Sign() for a maker of 300 characters gave no error")
	}
	if err := k.Add(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Check(preview.Link, token, id, p); err != nil {
		t.Errorf("Check() with a newer key beside: %v", err)
	}
	relabeled, other := p, p
	relabeled.Label, other.Port = sandbox.PortLabel(3000), 3001
	for name, check := range map[string]func() (preview.Grant, error){
		"another_kind":    func() (preview.Grant, error) { return l.Check(preview.Cookie, token, id, p) },
		"another_sandbox": func() (preview.Grant, error) { return l.Check(preview.Link, token, sandbox.NewID(), p) },
		"another_label":   func() (preview.Grant, error) { return l.Check(preview.Link, token, id, relabeled) },
		"another_port":    func() (preview.Grant, error) { return l.Check(preview.Link, token, id, other) },
		"another_key":     func() (preview.Grant, error) { return preview.New(keys(t)).Check(preview.Link, token, id, p) },
		"cut_short":       func() (preview.Grant, error) { return l.Check(preview.Link, token[:len(token)-1], id, p) },
		"without_prefix": func() (preview.Grant, error) {
			return l.Check(preview.Link, strings.TrimPrefix(token, preview.LinkPrefix), id, p)
		},
		"nothing": func() (preview.Grant, error) { return l.Check(preview.Link, "", id, p) },
	} {
		if _, err := check(); sandbox.CodeOf(err) != sandbox.Unauthenticated {
			t.Errorf("%s: %v, want unauthenticated", name, err)
		}
	}
}

func TestLinksExpire(t *testing.T) {
	l := preview.New(keys(t))
	id, p := sandbox.NewID(), port(3000)
	synctest.Test(t, func(t *testing.T) {
		token, err := l.Sign(preview.Link, id, p, preview.Grant{Expires: time.Now().Add(time.Minute)})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute - time.Second)
		if _, err := l.Check(preview.Link, token, id, p); err != nil {
			t.Errorf("Check() a second before: %v", err)
		}
		time.Sleep(time.Second)
		if _, err := l.Check(preview.Link, token, id, p); sandbox.CodeOf(err) != sandbox.Unauthenticated || !strings.Contains(err.Error(), "expired") {
			t.Errorf("Check() when it has expired: %v", err)
		}
	})
}

// FuzzCheck lets nothing through that was not signed: every change of a token is a wrong one.
func FuzzCheck(f *testing.F) {
	l := preview.New(keys(f))
	id, p := sandbox.NewID(), port(3000)
	token, err := l.Sign(preview.Link, id, p, preview.Grant{Maker: preview.Maker{User: "ada", Token: "t-1"}, Expires: time.Now().Add(time.Hour)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(token + "=")
	f.Add(preview.LinkPrefix)
	f.Add(token[:len(token)-1] + "A")
	f.Add(token + "AAAA")
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := l.Check(preview.Link, text, id, p); text != token && sandbox.CodeOf(err) != sandbox.Unauthenticated {
			t.Errorf("Check(%q) = %v", text, err)
		}
	})
}
