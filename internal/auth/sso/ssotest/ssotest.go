// Package ssotest is a service that people sign in with, for tests: a process of its own.
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

// asIssuer in the environment has the program of a test be the issuer.
const asIssuer = "MODBOX_TEST_ISSUER"

const clientID, clientSecret = "modbox", "s3cret"

// Main is the process of an [Issuer] when the program was started as one, and does not
// return then. It is to be called first by TestMain wherever [New] is used.
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

// Issuer is a small OpenID Connect issuer, and a GitHub, over real HTTP. It signs
// everybody in at once, as ada@example.com, or octo@example.com for GitHub.
type Issuer struct {
	// URL is where it is, without a slash at the end.
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
		t.Fatalf("the issuer says no address; does TestMain call ssotest.Main? %v", err)
	}
	return &Issuer{URL: strings.TrimSpace(line), t: t}
}

// Fault is what is wrong with identity tokens.
type Fault struct {
	Claims   map[string]any `json:"claims"`    // instead of the right ones
	Without  []string       `json:"without"`   // claims that are left out
	OtherKey bool           `json:"other_key"` // they are signed with another key than the issuer shows
}

// Spoil has the next tokens a fault; the zero Fault is none.
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
		i.t.Fatalf("the issuer took no fault: %s", resp.Status)
	}
}

// Providers are the two that the issuer is, "acme" and "github", which let addresses of the domains in.
func (i *Issuer) Providers(domains ...string) []sso.Provider {
	return []sso.Provider{
		{Name: "acme", Issuer: i.URL, ClientID: clientID, ClientSecret: clientSecret, Domains: domains},
		{Name: "github", Type: "github", Issuer: i.URL, ClientID: clientID, ClientSecret: clientSecret, Domains: domains},
	}
}
