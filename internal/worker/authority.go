package worker

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/statedir"
)

const (
	// TokenFile is the name of the file with the token in the authority's directory.
	TokenFile     = "token"
	authorityFile = "authority.pem"

	tokenPrefix   = "mbw_"
	authorityLife = 10 * 365 * 24 * time.Hour
	// certificateLife is the life of the certificates of workers and of the control plane.
	certificateLife = time.Hour
	// clockSkew is how much the clocks of two machines may differ.
	clockSkew = 5 * time.Minute
	// controlName is the name in the certificates of the control plane, whatever its address is.
	controlName = "control.modbox.internal"
)

// Authority issues the certificates of a control plane and its workers. It is safe for concurrent use.
type Authority struct {
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	secret string

	mu   sync.Mutex
	leaf *tls.Certificate // guarded by mu; of the control plane
}

// OpenAuthority returns the authority in a directory. The first call makes it, and its token.
func OpenAuthority(dir string) (*Authority, error) {
	if err := statedir.Make(dir); err != nil {
		return nil, err
	}
	return readAuthority(dir, func(name string, made func() (string, error)) (string, error) { return secretFile(dir, name, made) })
}

// ReadAuthority returns the authority in a directory that already has its file and the token's.
func ReadAuthority(dir string) (*Authority, error) {
	return readAuthority(dir, func(name string, _ func() (string, error)) (string, error) {
		text, err := os.ReadFile(filepath.Join(dir, name))
		return strings.TrimSpace(string(text)), err
	})
}

// readAuthority returns the authority in a directory, whose files read returns; it may make a missing file.
func readAuthority(dir string, read func(name string, made func() (string, error)) (string, error)) (*Authority, error) {
	text, err := read(authorityFile, newAuthority)
	if err != nil {
		return nil, fmt.Errorf("authority of workers: %w", err)
	}
	a := &Authority{}
	if a.cert, a.key, err = parseAuthority([]byte(text)); err != nil {
		return nil, fmt.Errorf("authority of workers: %s: %w", filepath.Join(dir, authorityFile), err)
	}
	token, err := read(TokenFile, func() (string, error) { return tokenPrefix + rand.Text() + "." + digest(a.cert.Raw), nil })
	if err != nil {
		return nil, fmt.Errorf("token of workers: %w", err)
	}
	parsed, err := parseToken(token)
	if err != nil {
		return nil, fmt.Errorf("token of workers: %s: %w", filepath.Join(dir, TokenFile), err)
	}
	if parsed.authority != digest(a.cert.Raw) {
		return nil, fmt.Errorf("token of workers: %s is not of the authority in %s; provide the two that belong together, or remove the token where the server makes it",
			filepath.Join(dir, TokenFile), authorityFile)
	}
	a.secret = parsed.secret
	return a, nil
}

// secretFile returns the content of a file, which it makes if there is none.
func secretFile(dir, name string, made func() (string, error)) (string, error) {
	path := filepath.Join(dir, name)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		_, err = statedir.WriteSecret(dir, name, func() (string, bool, error) {
			text, err := made()
			return text, err == nil, err
		})
		if err == nil {
			text, err = os.ReadFile(path)
		}
	}
	return strings.TrimSpace(string(text)), err
}

func newAuthority() (string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "Modbox workers"},
		NotBefore: time.Now().Add(-clockSkew), NotAfter: time.Now().Add(authorityLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return "", err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", err
	}
	var text bytes.Buffer
	_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: cert}) // a buffer takes all
	_ = pem.Encode(&text, &pem.Block{Type: "PRIVATE KEY", Bytes: private})
	return strings.TrimSpace(text.String()), nil
}

func parseAuthority(text []byte) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	pair, err := tls.X509KeyPair(text, text)
	if err != nil {
		return nil, nil, err
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, nil, errors.New("its key is of another kind")
	}
	return pair.Leaf, key, nil
}

// serial returns the number of a new certificate.
func serial() *big.Int {
	n, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // never fails
	return n
}

func digest(cert []byte) string {
	sum := sha256.Sum256(cert)
	return hex.EncodeToString(sum[:])
}

// token is a parsed token.
type token struct {
	secret    string
	authority string // digest of its certificate
}

func parseToken(text string) (token, error) {
	secret, authority, found := strings.Cut(strings.TrimSpace(text), ".")
	if raw, err := hex.DecodeString(authority); !found || err != nil || len(raw) != sha256.Size || !strings.HasPrefix(secret, tokenPrefix) {
		return token{}, errors.New("it is no token of a worker, which begins with " + tokenPrefix)
	}
	return token{secret, authority}, nil
}

// TokenFor returns the token of a worker whose id the server has chosen; see [NewSuppliedID]. It is of use for that worker alone.
func (a *Authority) TokenFor(id string) string { return a.secretOf(id) + "." + digest(a.cert.Raw) }

// secretOf returns the secret with which a worker joins: its own if the server has chosen its id, otherwise the same for all. So a
// worker beside a single sandbox has nothing by which it could join as another.
func (a *Authority) secretOf(id string) string {
	if !Supplied(id) {
		return a.secret
	}
	mac := hmac.New(sha256.New, []byte(a.secret))
	mac.Write([]byte(id)) // never fails
	return tokenPrefix + hex.EncodeToString(mac.Sum(nil))
}

// issue returns a certificate for the holder of the worker's secret, if check agrees.
func (a *Authority) issue(j join, check func(Identity) error) (cert []byte, err error) {
	if subtle.ConstantTimeCompare([]byte(j.Secret), []byte(a.secretOf(j.Worker))) != 1 {
		return nil, sandbox.Errorf(sandbox.Unauthenticated, "the token is not this server's")
	}
	if _, ok := parseWorkerID(j.Worker); !ok {
		return nil, sandbox.InvalidField("worker", "%q is not the id of a worker", j.Worker)
	}
	asked, err := x509.ParseCertificateRequest(j.Request)
	if err == nil {
		err = asked.CheckSignature()
	}
	if err != nil {
		return nil, sandbox.InvalidField("request", "it is no request for a certificate: %v", err)
	}
	if _, ok := asked.PublicKey.(*ecdsa.PublicKey); !ok {
		return nil, sandbox.InvalidField("request", "its key must be an ECDSA key")
	}
	if err := check(identity(j.Worker, asked.PublicKey)); err != nil {
		return nil, err
	}
	return a.sign(asked.PublicKey, &x509.Certificate{
		Subject: pkix.Name{CommonName: j.Worker}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

func (a *Authority) sign(key any, c *x509.Certificate) ([]byte, error) {
	now := time.Now()
	c.SerialNumber, c.KeyUsage = serial(), x509.KeyUsageDigitalSignature
	c.NotBefore, c.NotAfter = now.Add(-clockSkew), now.Add(certificateLife)
	return x509.CreateCertificate(rand.Reader, c, a.cert, key, a.key)
}

// own returns the certificate of the control plane, which is replaced in the last half of its life.
func (a *Authority) own(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.leaf != nil && time.Until(a.leaf.Leaf.NotAfter) > certificateLife/2 {
		return a.leaf, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := a.sign(key.Public(), &x509.Certificate{
		Subject: pkix.Name{CommonName: controlName}, DNSNames: []string{controlName},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, // other servers are clients: [Authority.Dial]
	})
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	a.leaf = &tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: key, Leaf: leaf}
	return a.leaf, nil
}

// pool has the authority's certificate.
func (a *Authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}
