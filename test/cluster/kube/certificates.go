package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	api "k8s.io/client-go/tools/clientcmd/api"
)

// authority issues the certificates of a cluster.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// certificates writes the certificates of the cluster, and a kubeconfig for each client.
func (c *cluster) certificates() error {
	a := &authority{dir: c.dir}
	err := a.issue("ca", &x509.Certificate{
		Subject: pkix.Name{CommonName: "kubernetes"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	if err != nil {
		return err
	}
	err = a.issue("apiserver", &x509.Certificate{
		Subject: pkix.Name{CommonName: "kube-apiserver"}, IPAddresses: addresses(hubAddress, apiService, "127.0.0.1"),
		DNSNames: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + domain},
	})
	if err != nil {
		return err
	}
	if err := a.issue("service-accounts", &x509.Certificate{Subject: pkix.Name{CommonName: "service accounts"}}); err != nil { // its key is used
		return err
	}
	clients := map[string]*x509.Certificate{
		"admin":                   {Subject: pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}}},
		"kube-controller-manager": {Subject: pkix.Name{CommonName: "system:kube-controller-manager"}},
		"kube-scheduler":          {Subject: pkix.Name{CommonName: "system:kube-scheduler"}},
		"kube-proxy":              {Subject: pkix.Name{CommonName: "system:kube-proxy"}},
	}
	for n := range nodes { // the kubelet also serves with it
		clients[nodeName(n)] = &x509.Certificate{
			Subject:     pkix.Name{CommonName: "system:node:" + nodeName(n), Organization: []string{"system:nodes"}},
			IPAddresses: addresses(nodeAddress(n)), DNSNames: []string{nodeName(n)},
		}
	}
	for name, template := range clients {
		if err := a.issue(name, template); err != nil {
			return err
		}
		if err := a.kubeconfig(name); err != nil {
			return err
		}
	}
	return nil
}

func addresses(texts ...string) (ips []net.IP) {
	for _, text := range texts {
		ips = append(ips, net.ParseIP(text))
	}
	return ips
}

// issue writes NAME.key and NAME.crt. The first certificate is the authority's own.
func (a *authority) issue(name string, template *x509.Certificate) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return err
	}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(30*24*time.Hour)
	template.KeyUsage |= x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	if a.cert == nil {
		a.cert, a.key = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), crypto.Signer(a.key))
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := writePEM(a.path(name, ".key"), "PRIVATE KEY", private); err != nil {
		return err
	}
	return writePEM(a.path(name, ".crt"), "CERTIFICATE", der)
}

func (a *authority) path(name, suffix string) string { return filepath.Join(a.dir, name+suffix) }

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// kubeconfig writes NAME.kubeconfig.
func (a *authority) kubeconfig(name string) error {
	config := api.NewConfig()
	config.Clusters["test"] = &api.Cluster{Server: apiServer, CertificateAuthority: a.path("ca", ".crt")}
	config.AuthInfos[name] = &api.AuthInfo{ClientCertificate: a.path(name, ".crt"), ClientKey: a.path(name, ".key")}
	config.Contexts["test"] = &api.Context{Cluster: "test", AuthInfo: name}
	config.CurrentContext = "test"
	return clientcmd.WriteToFile(*config, a.path(name, ".kubeconfig"))
}
