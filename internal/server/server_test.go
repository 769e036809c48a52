package server

import (
	"bytes"
	"net"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/config"
)

func TestPublicURL(t *testing.T) {
	tcp := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 7070} }
	for _, tc := range []struct {
		cfg  config.Config
		addr net.Addr
		want string
	}{
		{config.Config{}, tcp("127.0.0.1"), "http://127.0.0.1:7070"},
		{config.Config{}, tcp("::1"), "http://[::1]:7070"},
		{config.Config{}, tcp("0.0.0.0"), "http://127.0.0.1:7070"},
		{config.Config{}, tcp("::"), "http://127.0.0.1:7070"},
		{config.Config{TLS: config.TLS{Cert: "c", Key: "k"}}, tcp("10.0.0.1"), "https://10.0.0.1:7070"},
		{config.Config{PublicURL: "https://modbox.example.com"}, tcp("127.0.0.1"), "https://modbox.example.com"},
	} {
		if got := publicURL(tc.cfg, tc.addr); got != tc.want {
			t.Errorf("publicURL(%q, %v) = %q, want %q", tc.cfg.PublicURL, tc.addr, got, tc.want)
		}
	}
}

func TestLogger(t *testing.T) {
	var b bytes.Buffer
	log := NewLogger(config.Log{Level: "warn", Format: "json"}, &b)
	log.Info("quiet")
	log.Warn("loud")
	if got := b.String(); strings.Contains(got, "quiet") || !strings.Contains(got, `"msg":"loud"`) {
		t.Errorf("log = %q, want only the warning, as JSON", got)
	}
}
