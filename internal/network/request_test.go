package network

import (
	"errors"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/sandbox"
)

func TestCheckHost(t *testing.T) {
	long := strings.Repeat("a", 63)
	for _, host := range []string{
		"", "localhost", "localhost:${PORT}", "${PORT}-x.Example.com", "a_b.test:80", "127.0.0.1", "127.0.0.1:${PORT}", "[::1]", "[::1]:${PORT}", "x:65535",
		long + "." + long + "." + long + "." + long[:61],
	} {
		if err := CheckHost("f", host); err != nil {
			t.Errorf("%q: %v", host, err)
		}
	}
	for _, host := range []string{
		"a b", "a\r\nX: y", "a\nb", "a\x00", "a/b", "http://a", "a@b", "a?b", "a#b", "a,b", "a:0", "a:80:80", "a:080", "a:+80", "a:65536", "a:", ":80", "a..b", "a.", ".",
		"-a", "a-", "*.a", "$PORT", "${HOST}", "${port}", "1${PORT}:1${PORT}", "[::1", "::1", "[::1%25lo]", "[1.2.3.4]", "[::1]x", "ä.test", "a%41",
		long + "a", long + "." + long + "." + long + "." + long, long + "." + long + "." + long + "." + long[:57] + "${PORT}",
	} {
		err := CheckHost("f", host)
		var e *sandbox.Error
		if !errors.As(err, &e) || e.Code != sandbox.Invalid || e.Field != "f" {
			t.Errorf("%q: %v, want the field named", host, err)
		}
	}
}
