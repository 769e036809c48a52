package server

import (
	"crypto/tls"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"gvisor.dev/gvisor/pkg/cleanup"

	"github.com/modbox/modbox/internal/config"
)

// TestRenewedFiles replaces the files of the settings while the listener serves.
func TestRenewedFiles(t *testing.T) {
	var cu cleanup.Cleanup
	defer cu.Clean()
	cert, key := selfSigned(t)
	e, err := openEncryption(t.Context(), config.Config{TLS: config.TLS{Cert: cert, Key: key}}, &net.TCPAddr{}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler), &cu)
	if err != nil {
		t.Fatal(err)
	}
	shown := func() string {
		t.Helper()
		c, err := e.config.GetCertificate(&tls.ClientHelloInfo{})
		if err != nil {
			t.Fatal(err)
		}
		return string(c.Certificate[0])
	}
	before := shown()
	newCert, newKey := selfSigned(t)
	for from, to := range map[string]string{newCert: cert, newKey: key} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(time.Minute); shown() == before; time.Sleep(50 * time.Millisecond) { // the files are looked at once a second
		if time.Now().After(deadline) {
			t.Fatal("the renewed certificate is not in use after a minute")
		}
	}
}
