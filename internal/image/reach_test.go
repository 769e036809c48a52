package image_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/sandbox"
)

// unlistedStore is a store of a server whose operator has allowed these registries only.
func unlistedStore(t *testing.T, listed ...string) *image.Store {
	t.Helper()
	s, err := image.Open(t.TempDir(), recipeFS(), image.Options{Bootstrapper: &fake{}, InsecureRegistries: listed})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// victim is a service of the server's machine, which counts who talks to it.
func victim(t *testing.T, start func(http.Handler) *httptest.Server) (port string, asked *atomic.Int32) {
	t.Helper()
	asked = new(atomic.Int32)
	srv := start(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	srv.Config.ConnState = func(net.Conn, http.ConnState) { asked.Add(1) }
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()[len("127.0.0.1:"):], asked
}

// machineAddress is an address of this machine that is none of loopback's.
func machineAddress(t *testing.T) string {
	t.Helper()
	list, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range list {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && n.IP.To4() != nil {
			return n.IP.String()
		}
	}
	t.Skip("this machine has no address but those of loopback")
	return ""
}

// TestRegistriesOfTheServersMachine: no reference and no registry's entry sends the
// server to a service of its own machine, whatever it is called.
func TestRegistriesOfTheServersMachine(t *testing.T) {
	plain, plainAsked := victim(t, httptest.NewServer)
	secure, secureAsked := victim(t, httptest.NewTLSServer)
	s := unlistedStore(t)
	for _, port := range []string{plain, secure} {
		for _, host := range []string{"127.0.0.1", "localhost", "127.1.2.3", "[::1]", "[::ffff:127.0.0.1]"} {
			host := host + ":" + port
			t.Run(host, func(t *testing.T) {
				refused := func(what string, err error) {
					t.Helper()
					wantCode(t, what, err, sandbox.Unavailable)
					for _, words := range []string{host, "the setting images.insecure_registries can allow a registry there"} {
						if err != nil && !strings.Contains(err.Error(), words) {
							t.Errorf("%s: the error %q does not say %q", what, err, words)
						}
					}
				}
				refused("SignIn", s.SignIn(t.Context(), host, sandbox.RegistryLogin{}))
				if strings.HasPrefix(host, "[") {
					return // references cannot have such hosts
				}
				_, err := s.Pull(t.Context(), host+"/x", image.PullOptions{})
				refused("Pull", err)
			})
		}
	}
	t.Run("interface", func(t *testing.T) {
		host := machineAddress(t) + ":" + secure
		err := s.SignIn(t.Context(), host, sandbox.RegistryLogin{})
		wantCode(t, "SignIn", err, sandbox.Unavailable)
		if !strings.Contains(err.Error(), host+" is the server's own machine") {
			t.Errorf("the error %q does not say why", err)
		}
	})
	if plainAsked.Load()+secureAsked.Load() != 0 {
		t.Errorf("the machine's services were connected to %d and %d times", plainAsked.Load(), secureAsked.Load())
	}
}

// TestListedRegistries: what the operator listed is asked, there and on no other port.
func TestListedRegistries(t *testing.T) {
	reg := newRegistry(t)
	reg.push(t, "app:v1", imageOf(t, v1.Config{}, gzipped(t, file("a", "a", 0o644))))
	port := reg.host[len("127.0.0.1:"):]
	for _, listed := range []string{"127.0.0.1", reg.host, "localhost", "localhost:" + port} {
		host, _, _ := strings.Cut(listed, ":")
		if _, err := unlistedStore(t, listed).Pull(t.Context(), host+":"+port+"/app:v1", image.PullOptions{}); err != nil {
			t.Errorf("Pull with %s listed: %v", listed, err)
		}
	}
	other, asked := victim(t, httptest.NewServer)
	_, err := unlistedStore(t, reg.host).Pull(t.Context(), "127.0.0.1:"+other+"/app:v1", image.PullOptions{})
	wantCode(t, "Pull from another port", err, sandbox.Unavailable)
	if asked.Load() != 0 {
		t.Error("another port than the listed one was connected to")
	}
}

// TestRegistriesThatSendElsewhere: a registry that may be asked, which may be
// anybody's, cannot send the server to its own machine or to a cloud's metadata.
func TestRegistriesThatSendElsewhere(t *testing.T) {
	reg := newRegistry(t)
	reg.push(t, "app:v1", imageOf(t, v1.Config{}, gzipped(t, file("a", "a", 0o644))))
	plain, plainAsked := victim(t, httptest.NewServer)
	secure, secureAsked := victim(t, httptest.NewTLSServer)
	to := func(target string) map[string]func(http.ResponseWriter, *http.Request) bool {
		redirect := func(part string) func(http.ResponseWriter, *http.Request) bool {
			return func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.Contains(r.URL.Path, part) {
					return false
				}
				http.Redirect(w, r, target+"/x", http.StatusTemporaryRedirect)
				return true
			}
		}
		return map[string]func(http.ResponseWriter, *http.Request) bool{
			"greeting": redirect("/v2/"), "manifest": redirect("/manifests/"), "blob": redirect("/blobs/"),
			"token": func(w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm=%q,service="x"`, target+"/token"))
				w.WriteHeader(http.StatusUnauthorized)
				return true
			},
		}
	}
	for target, words := range map[string]string{
		"http://127.0.0.1:" + plain: "plain http", "http://localhost:" + plain: "plain http",
		"https://127.0.0.1:" + secure: "own machine", "https://localhost:" + secure: "own machine",
		"https://169.254.169.254": "not where a registry may be", "http://169.254.169.254": "plain http",
	} {
		for name, intercept := range to(target) {
			t.Run(name+"_"+target, func(t *testing.T) {
				reg.on(intercept)
				_, err := unlistedStore(t, reg.host).Pull(t.Context(), reg.host+"/app:v1", image.PullOptions{})
				wantCode(t, "Pull", err, sandbox.Unavailable)
				// The library refuses what is an address as it is written before we do.
				if err != nil && !strings.Contains(err.Error(), words) && !strings.Contains(err.Error(), "private") {
					t.Errorf("the error %q does not say %q", err, words)
				}
			})
		}
	}
	if plainAsked.Load()+secureAsked.Load() != 0 {
		t.Errorf("the machine's services were connected to %d and %d times", plainAsked.Load(), secureAsked.Load())
	}
}

// TestPrivateAddresses: no connection is tried to the addresses of an operator who
// has closed the own network.
func TestPrivateAddresses(t *testing.T) {
	s, err := image.Open(t.TempDir(), recipeFS(), image.Options{Bootstrapper: &fake{}, PublicOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"10.0.0.5", "172.16.0.5:5000", "192.168.7.5", "100.64.0.5", "[fd00::5]"} {
		err := s.SignIn(t.Context(), host, sandbox.RegistryLogin{})
		wantCode(t, "SignIn at "+host, err, sandbox.Unavailable)
		if err != nil && !strings.Contains(err.Error(), "images.private_registries") {
			t.Errorf("SignIn at %s: the error %q does not name the setting", host, err)
		}
	}
}

// TestReservedAddresses: a registry at a reserved or private address, or on the server's
// machine, is asked when the operator listed it, and only then. A list does not make the
// server ask what cannot be an operator's registry.
func TestReservedAddresses(t *testing.T) {
	for addr, want := range map[string]struct{ listed, public, private bool }{
		"1.1.1.1": {true, true, true}, "2606:4700::1111": {true, true, true},
		"10.1.2.3": {true, false, true}, "fd00::5": {true, false, true}, "198.18.0.9": {true, false, true},
		"240.0.0.1": {true, false, false}, "192.0.2.7": {true, false, false}, "203.0.113.9": {true, false, false}, "2001:db8::5": {true, false, false},
		"127.0.0.1": {true, false, false}, "::1": {true, false, false}, "::ffff:127.0.0.1": {true, false, false},
		"169.254.169.254": {}, "100.100.100.200": {}, "0.0.0.0": {}, "224.0.0.1": {}, "255.255.255.255": {}, "fd00:ec2::254": {}, "64:ff9b::a9fe:a9fe": {},
	} {
		ip := netip.MustParseAddr(addr)
		for kind, check := range map[string]struct {
			err  error
			want bool
		}{
			"listed": {image.CheckListed(ip), want.listed}, "public": {image.CheckUnlisted(ip, true), want.public}, "private": {image.CheckUnlisted(ip, false), want.private},
		} {
			if errors.Is(check.err, unix.ENETUNREACH) {
				continue // a machine without a route to this address does not reach it either
			}
			if (check.err == nil) != check.want {
				t.Errorf("a registry at %s, %s: %v, want it to be asked: %t", addr, kind, check.err, check.want)
			}
		}
	}
}

// TestRegistriesByProxy: hosts that say by themselves that they are of the server's
// machine are not asked by way of a proxy either; the proxy may be on it.
func TestRegistriesByProxy(t *testing.T) {
	if os.Getenv("MODBOX_TEST_PROXIED") != "" { // the environment's proxy is found once per process
		s := unlistedStore(t)
		for host, words := range map[string]string{
			"127.0.0.1": "own machine", "localhost": "own machine", "localhost.": "own machine", "127.1": "not where", "0x7f.1": "not where",
			"2130706433": "not where", "169.254.169.254": "not where", "registry.test": "Proxy Authentication Required", "[fe80::1]": "not where",
			"\uff11\uff16\uff19.\uff12\uff15\uff14.\uff11\uff16\uff19.\uff12\uff15\uff14": "not where",
			"[64:ff9b::7f00:1]": "own machine", "[64:ff9b:1::a9fe:a9fe]": "not where", "[2002:7f00:1::1]": "own machine", "[2002:a9fe:a9fe::]": "not where",
		} {
			if err := s.SignIn(t.Context(), host, sandbox.RegistryLogin{}); err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("SignIn at %s = %v, want an error with %q", host, err, words)
			}
		}
		return
	}
	hosts := make(chan string, 100)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hosts <- r.Method + " " + r.Host
		w.WriteHeader(http.StatusProxyAuthRequired)
	}))
	defer proxy.Close()
	cmd := exec.Command(os.Args[0], "-test.run=^TestRegistriesByProxy$", "-test.v")
	cmd.Env = append(os.Environ(), "MODBOX_TEST_PROXIED=1", "HTTPS_PROXY="+proxy.URL, "https_proxy=", "NO_PROXY=", "no_proxy=")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestRegistriesByProxy") {
		t.Errorf("the proxied process: %v\n%s", err, out)
	}
	close(hosts)
	for host := range hosts {
		if host != "CONNECT registry.test:443" {
			t.Errorf("the proxy was asked: %s", host)
		}
	}
}

func TestSignIn(t *testing.T) {
	reg := newRegistry(t)
	s, err := image.Open(t.TempDir(), recipeFS(), image.Options{InsecureRegistries: loopback, Bootstrapper: &fake{}})
	if err != nil {
		t.Fatal(err)
	}
	ann := func(password string) sandbox.RegistryLogin {
		return sandbox.RegistryLogin{Proof: "1", Username: "ann", Password: password}
	}
	for name, intercept := range map[string]func(http.ResponseWriter, *http.Request) bool{
		"basic": basicAuth("ann", "pw"), "token": tokenAuth(reg.host, "ann", "pw"),
	} {
		t.Run(name, func(t *testing.T) {
			reg.on(intercept)
			if err := s.SignIn(t.Context(), reg.host, ann("pw")); err != nil {
				t.Errorf("the right password: %v", err)
			}
			err := s.SignIn(t.Context(), reg.host, ann("wr0ng"))
			wantCode(t, "a wrong password", err, sandbox.Forbidden)
			if strings.Contains(err.Error(), "wr0ng") {
				t.Errorf("the error tells the password: %v", err)
			}
		})
	}
	reg.on(func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusNotFound)
		return true
	})
	wantCode(t, "what is no registry", s.SignIn(t.Context(), reg.host, ann("pw")), sandbox.Unavailable)
	wantCode(t, "a link-local address", s.SignIn(t.Context(), "169.254.169.254", ann("pw")), sandbox.Unavailable)
	asked := false
	reg.on(func(w http.ResponseWriter, r *http.Request) bool {
		asked = true
		w.Header().Set("WWW-Authenticate", `Bearer realm="http://registry.example/token",service="test"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	})
	wantCode(t, "a token server by plain http", s.SignIn(t.Context(), reg.host, ann("pw")), sandbox.Unavailable)
	if !asked {
		t.Error("the registry was not asked")
	}
}
