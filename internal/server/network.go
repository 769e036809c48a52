package server

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/netip"
	"os"

	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/egress"
	"github.com/modbox/modbox/internal/netrule"
	"github.com/modbox/modbox/internal/sandbox"
)

// gateways adapts egress to package network.
type gateways struct{ network *egress.Network }

// Attach implements [network.Gateways].
func (g gateways) Attach(id sandbox.ID, rules *netrule.Rules) (box.Gateway, driver.NIC, error) {
	gw, nic, err := g.network.Attach(string(id))
	if err != nil {
		return nil, driver.NIC{}, err
	}
	gw.Restrict(rules) // nothing is plugged into it yet
	return gateway{gw}, driver.NIC(nic), nil
}

// Nameserver implements [network.Gateways].
func (gateways) Nameserver() netip.Addr { return egress.GatewayAddr }

type gateway struct{ *egress.Gateway }

// Traffic implements [box.Gateway].
func (g gateway) Traffic() (sent, received int64) {
	u := g.Usage()
	return u.SentBytes, u.ReceivedBytes
}

// maxCA bounds the certificates that are sent to every sandbox with network.
const maxCA = 384 << 10

// readCA returns only the certificates of a PEM file; none for "".
func readCA(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("network.ca_file: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 4*maxCA))
	if err != nil {
		return nil, fmt.Errorf("network.ca_file: %w", err)
	}
	var ca bytes.Buffer
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return nil, fmt.Errorf("network.ca_file: %s: %w", path, err)
		}
		ca.Write(pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes}))
	}
	if ca.Len() == 0 || ca.Len() > maxCA {
		return nil, fmt.Errorf("network.ca_file: %s has %d bytes of certificates, want 1 to %d", path, ca.Len(), maxCA)
	}
	return ca.Bytes(), nil
}
