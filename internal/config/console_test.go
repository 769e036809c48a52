package config_test

import (
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/config"
)

func TestConsoleURL(t *testing.T) {
	for _, c := range []struct{ setting, public, want string }{
		{"auto", "http://127.0.0.1:7070", "http://console.localhost:7070"},
		{"auto", "http://localhost:8080", "http://console.localhost:8080"},
		{"auto", "http://[::1]:7070", "http://console.localhost:7070"},
		{"auto", "http://127.0.0.1", "http://console.localhost"},
		{"auto", "https://127.0.0.1:7070", ""}, // a certificate for console.localhost is unlikely
		{"auto", "http://10.0.0.1:7070", ""},
		{"auto", "https://box.example.com", ""},
		{"off", "http://127.0.0.1:7070", ""},
		{"https://console.example.com/", "https://box.example.com", "https://console.example.com"},
	} {
		console := config.Console{URL: c.setting}
		if got := console.At(c.public); got != c.want {
			t.Errorf("%s of a server at %s = %q, want %q", c.setting, c.public, got, c.want)
		}
	}
}

func TestConsoleHasAHostOfItsOwn(t *testing.T) {
	for value, want := range map[string]string{
		"https://console.example.com":         "",
		"https://console.example.com:8443":    "",
		"http://console.localhost:7070":       "",
		"auto":                                "",
		"off":                                 "",
		"on":                                  "a URL with a host",
		"console.example.com":                 "a URL with a host",
		"https://console.example.com/admin":   "a URL with a host",
		"https://console.example.com?a=b":     "a URL with a host",
		"https://me@console.example.com":      "a URL with a host",
		"http://console.example.com":          "must be https",
		"ftp://console.example.com":           "must be https",
		"https://192.0.2.1":                   "a host name that nothing else uses",
		"http://127.0.0.1:7071":               "a host name that nothing else uses",
		"http://localhost:7071":               "a host name that nothing else uses",
		"https://BOX.example.com":             "the host of public_url",
		"https://box.example.com:8443":        "the host of public_url",
		"https://sandbox.example.com":         "beneath domain",
		"https://console.Sandbox.example.com": "beneath domain",
	} {
		_, err := config.Load(config.Source{Environ: []string{
			"MODBOX_CONSOLE_URL=" + value, "MODBOX_PUBLIC_URL=https://box.example.com", "MODBOX_DOMAIN=sandbox.example.com", "HOME=" + t.TempDir(),
		}})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), "console.url: ") || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", value, err, want)
		}
	}
}
