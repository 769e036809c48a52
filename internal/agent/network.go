package agent

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/agentapi"
)

// maxConfFile bounds how much is read of a file that a guest may have written.
const maxConfFile = 4 << 20

// bundles are the paths where distributions store the certificates that programs trust.
var bundles = []string{
	"/etc/ssl/certs/ca-certificates.crt", // Debian, Alpine, Arch
	"/etc/pki/tls/certs/ca-bundle.crt",   // Fedora and derivatives
	"/etc/ssl/ca-bundle.pem",             // SUSE
	"/etc/ssl/cert.pem",
}

// setNetwork sets up name resolution and trust in the operator's certificates, and adds the
// variables that point programs at those certificates to env, unless they are set.
func (a *Agent) setNetwork(n *agentapi.Network, env map[string]string) error {
	if err := a.setNameserver(n.Nameserver); err != nil {
		return fmt.Errorf("set name server: %w", err)
	}
	if n.CA == "" {
		return nil
	}
	bundle, err := a.trust([]byte(n.CA))
	if err != nil {
		return fmt.Errorf("trust the operator's certificates: %w", err)
	}
	for name, path := range map[string]string{
		"NODE_EXTRA_CA_CERTS": agentapi.OperatorCA, "SSL_CERT_FILE": bundle, "REQUESTS_CA_BUNDLE": bundle,
	} {
		if _, set := env[name]; !set && path != "" {
			env[name] = path
		}
	}
	return nil
}

// setNameserver makes server the name server of the resolver, unless it is already.
func (a *Agent) setNameserver(server string) error {
	path := a.root.Path(agentapi.ResolvConf)
	line := "nameserver " + server + "\n"
	info, err := os.Lstat(path)
	if err == nil && info.Mode().IsRegular() {
		if have, err := readConf(path); err == nil && bytes.Contains(have, []byte(line)) {
			return nil
		}
	}
	return replaceFile(path, []byte(line))
}

// trust adds certificates to the bundle that the image's programs trust, and returns the path of
// that bundle; "" when the image has none.
func (a *Agent) trust(ca []byte) (bundle string, err error) {
	if have, err := readConf(a.root.Path(agentapi.OperatorCA)); err != nil || !bytes.Equal(have, ca) {
		if err := replaceFile(a.root.Path(agentapi.OperatorCA), ca); err != nil {
			return "", err
		}
	}
	for _, name := range bundles {
		have, err := readConf(a.root.Path(name))
		if errors.Is(err, os.ErrNotExist) || err == nil && bytes.Equal(have, ca) { // the latter was written below
			continue
		}
		if err == nil {
			err = appendMissing(a.root.Path(name), have, ca)
		}
		if err != nil {
			return "", err
		}
		if bundle == "" {
			bundle = name
		}
	}
	if bundle != "" {
		return bundle, nil
	}
	// Programs that read the usual path find at least these certificates. The variables do not
	// point there, because a program may have certificates of its own.
	return "", replaceFile(a.root.Path(bundles[0]), ca)
}

// appendMissing appends the certificates that a bundle lacks.
func appendMissing(path string, have, ca []byte) error {
	trusted := map[string]bool{}
	for block, rest := pem.Decode(have); block != nil; block, rest = pem.Decode(rest) {
		trusted[string(block.Bytes)] = true
	}
	var missing bytes.Buffer
	for block, rest := pem.Decode(ca); block != nil; block, rest = pem.Decode(rest) {
		if !trusted[string(block.Bytes)] {
			missing.Write(pem.EncodeToMemory(block))
		}
	}
	if missing.Len() == 0 {
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	// The bundle's last line may not end with a newline.
	_, err = f.Write(append([]byte("\n"), missing.Bytes()...))
	return errors.Join(err, f.Close())
}

// readConf reads a regular file of bounded size; a guest may have put anything there.
func readConf(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxConfFile {
		return nil, fmt.Errorf("%s is not a regular file of at most %d bytes", path, maxConfFile)
	}
	return io.ReadAll(io.LimitReader(f, maxConfFile))
}

// replaceFile replaces whatever is at path by a new file.
func replaceFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".modbox-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // a leftover file does no harm
	}
	return err
}
