// Package ssotest is a sign-in provider for tests, in a process of its own.
package ssotest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/auth/sso"
)

// asIssuer is the environment variable that makes a test's program run as the issuer.
const asIssuer = "MODBOX_TEST_ISSUER"

const clientID, clientSecret = "modbox", "s3cret"

// Main runs the process of an [Issuer] when the program was started as an issuer, and does not
// return then. TestMain must call it first in every package that uses [New].
func Main() {
	if os.Getenv(asIssuer) == "" {
		return
	}
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Issuer is a small OpenID Connect issuer, and a GitHub, over real HTTP. It signs every browser in
// at once, as ada@example.com, or octo@example.com for GitHub.
type Issuer struct {
	// URL is the base URL, without a slash at the end.
	URL string
	t   *testing.T
}

// New starts an Issuer that ends with the test, or with its process.
func New(t *testing.T) *Issuer {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), asIssuer+"=1")
	cmd.Stderr = t.Output()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the issuer: %v", err)
		}
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("the issuer printed no address; does TestMain call ssotest.Main? %v", err)
	}
	return &Issuer{URL: strings.TrimSpace(line), t: t}
}

// Fault describes faults in identity tokens.
type Fault struct {
	Claims   map[string]any `json:"claims"`    // override the correct claims
	Without  []string       `json:"without"`   // claims to omit
	OtherKey bool           `json:"other_key"` // sign with a key that the issuer does not publish
}

// Spoil applies a fault to the next tokens; the zero Fault removes it.
func (i *Issuer) Spoil(fault Fault) {
	i.t.Helper()
	body, err := json.Marshal(fault)
	if err != nil {
		i.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(i.t.Context(), http.MethodPut, i.URL+"/fault", bytes.NewReader(body))
	if err != nil {
		i.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		i.t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		i.t.Fatalf("the issuer did not accept the fault: %s", resp.Status)
	}
}

// Providers returns the two providers "acme" and "github"; addresses of the domains may sign up.
func (i *Issuer) Providers(domains ...string) []sso.Provider {
	return []sso.Provider{
		{Name: "acme", Issuer: i.URL, ClientID: clientID, ClientSecret: clientSecret, Domains: domains},
		{Name: "github", Type: "github", Issuer: i.URL, ClientID: clientID, ClientSecret: clientSecret, Domains: domains},
	}
}
