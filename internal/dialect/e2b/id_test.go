package e2b

import (
	"encoding/hex"
	"regexp"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/sandbox"
)

// label is the form of the part of a host name before its first dot.
var label = regexp.MustCompile(`^[a-z0-9]{1,50}$`)

func TestSandboxIDs(t *testing.T) {
	id := sandbox.NewID()
	text := SandboxID(id)
	if !label.MatchString(text) {
		t.Errorf("SandboxID(%s) = %q, which cannot be a part of a host", id, text)
	}
	for _, s := range []string{text, string(id)} {
		if got, ok := ParseSandboxID(s); !ok || got != id {
			t.Errorf("ParseSandboxID(%q) = %q, %v, want %q", s, got, ok, id)
		}
	}
	other := text[:len(text)-1] + "b" // sets bits that no id has
	for _, s := range []string{"", "i", text[1:], strings.ToUpper(text), text + "a", "t" + text[1:], other} {
		if got, ok := ParseSandboxID(s); ok && SandboxID(got) != s {
			t.Errorf("ParseSandboxID(%q) = %q: two texts for one id", s, got)
		}
	}
}

func TestToken(t *testing.T) {
	const token = "mbx_abc"
	for key, want := range map[string]string{
		token: token, "e2b_" + hex.EncodeToString([]byte(token)): token, "e2b_xyz": "e2b_xyz", "": "", "other": "other",
	} {
		if got := Token(key); got != want {
			t.Errorf("Token(%q) = %q, want %q", key, got, want)
		}
	}
}

// TestSign has a pair that E2B's own servers accept.
func TestSign(t *testing.T) {
	s := Signed{Path: "hello.txt", Operation: "read", User: "user"}
	const token, want = "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0", "v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E"
	if got := s.sign(token); got != want {
		t.Errorf("sign = %q, want %q", got, want)
	}
	if s.Expires = 1; s.sign(token) == want {
		t.Error("the signature does not cover the expiry")
	}
}

func TestPairs(t *testing.T) {
	got, err := pairs("odd%2520%2526%2520key=a%253Db&x=1") // as the clients encode "odd & key": "a=b"
	if err != nil || got["odd & key"] != "a=b" || got["x"] != "1" || len(got) != 2 {
		t.Errorf("pairs = %v, %v", got, err)
	}
	for _, s := range []string{"%zz", "a=%25zz"} {
		if got, err := pairs(s); sandbox.CodeOf(err) != sandbox.Invalid {
			t.Errorf("pairs(%q) = %v, %v, want an error", s, got, err)
		}
	}
}
