package remote_test

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

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/image/registrytest"
	"github.com/modbox/modbox/internal/image/remote"
	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
)

// victim is a service of the server's machine, which counts its connections and requests.
func victim(t *testing.T, start func(http.Handler) *httptest.Server) (port string, asked *atomic.Int32) {
	t.Helper()
	asked = new(atomic.Int32)
	srv := start(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	srv.Config.ConnState = func(net.Conn, http.ConnState) { asked.Add(1) }
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()[len("127.0.0.1:"):], asked
}

// machineAddress is an address of this machine that is not on loopback.
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

// TestRegistriesOfTheServersMachine: no reference and no login sends the server to a service of its
// own machine, under any name of that.
func TestRegistriesOfTheServersMachine(t *testing.T) {
	plain, plainAsked := victim(t, httptest.NewServer)
	secure, secureAsked := victim(t, httptest.NewTLSServer)
	c := client()
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
				refused("SignIn", c.SignIn(t.Context(), host, registry.Login{}))
				if strings.HasPrefix(host, "[") {
					return // references cannot have such hosts
				}
				err := pull(t, c, host+"/x")
				refused("Pull", err)
			})
		}
	}
	t.Run("interface", func(t *testing.T) {
		host := machineAddress(t) + ":" + secure
		err := c.SignIn(t.Context(), host, registry.Login{})
		wantCode(t, "SignIn", err, sandbox.Unavailable)
		if !strings.Contains(err.Error(), host+" is the server's own machine") {
			t.Errorf("the error %q does not say why", err)
		}
	})
	if plainAsked.Load()+secureAsked.Load() != 0 {
		t.Errorf("the machine's services were connected to %d and %d times", plainAsked.Load(), secureAsked.Load())
	}
}

// TestListedRegistries: the client asks a registry that the operator listed, on no other port.
func TestListedRegistries(t *testing.T) {
	reg := registrytest.New(t)
	reg.Push(t, "app:v1", randomImage(t, 100))
	port := reg.Host[len("127.0.0.1:"):]
	for _, listed := range []string{"127.0.0.1", reg.Host, "localhost", "localhost:" + port} {
		host, _, _ := strings.Cut(listed, ":")
		if err := pull(t, client(listed), host+":"+port+"/app:v1"); err != nil {
			t.Errorf("Pull with %s listed: %v", listed, err)
		}
	}
	other, asked := victim(t, httptest.NewServer)
	err := pull(t, client(reg.Host), "127.0.0.1:"+other+"/app:v1")
	wantCode(t, "Pull from another port", err, sandbox.Unavailable)
	if asked.Load() != 0 {
		t.Error("another port than the listed one was connected to")
	}
}

// TestRegistriesThatSendElsewhere: a registry, which anyone may own, cannot send the server to its
// own machine or to the metadata of a cloud.
func TestRegistriesThatSendElsewhere(t *testing.T) {
	reg := registrytest.New(t)
	reg.Push(t, "app:v1", randomImage(t, 100))
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
				reg.On(intercept)
				err := pull(t, client(reg.Host), reg.Host+"/app:v1")
				wantCode(t, "Pull", err, sandbox.Unavailable)
				// The library refuses the text of a private address before the client does.
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

// TestPrivateAddresses: the client tries no connection to private addresses if the operator closed
// them.
func TestPrivateAddresses(t *testing.T) {
	c := remote.New(remote.Options{PublicOnly: true})
	for _, host := range []string{"10.0.0.5", "172.16.0.5:5000", "192.168.7.5", "100.64.0.5", "[fd00::5]"} {
		err := c.SignIn(t.Context(), host, registry.Login{})
		wantCode(t, "SignIn at "+host, err, sandbox.Unavailable)
		if err != nil && !strings.Contains(err.Error(), "images.private_registries") {
			t.Errorf("SignIn at %s: the error %q does not name the setting", host, err)
		}
	}
}

// TestReservedAddresses: the client asks a registry at a reserved or private address, or on the
// server's machine, only if the operator listed it, and a registry at an unusable address never.
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
			"listed": {remote.CheckListed(ip), want.listed}, "public": {remote.CheckUnlisted(ip, true), want.public}, "private": {remote.CheckUnlisted(ip, false), want.private},
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

// TestRegistriesByProxy: the client does not ask hosts whose name is an address of the server's
// machine through a proxy either, which may be on that machine.
func TestRegistriesByProxy(t *testing.T) {
	if os.Getenv("MODBOX_TEST_PROXIED") != "" { // a process reads the proxy of its environment once
		c := client()
		for host, words := range map[string]string{
			"127.0.0.1": "own machine", "localhost": "own machine", "localhost.": "own machine", "127.1": "not where", "0x7f.1": "not where",
			"2130706433": "not where", "169.254.169.254": "not where", "registry.test": "Proxy Authentication Required", "[fe80::1]": "not where",
			"\uff11\uff16\uff19.\uff12\uff15\uff14.\uff11\uff16\uff19.\uff12\uff15\uff14": "not where",
			"[64:ff9b::7f00:1]": "own machine", "[64:ff9b:1::a9fe:a9fe]": "not where", "[2002:7f00:1::1]": "own machine", "[2002:a9fe:a9fe::]": "not where",
		} {
			if err := c.SignIn(t.Context(), host, registry.Login{}); err == nil || !strings.Contains(err.Error(), words) {
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
	reg := registrytest.New(t)
	c := client("127.0.0.1")
	ann := func(password string) registry.Login {
		return registry.Login{Proof: "1", Username: "ann", Password: password}
	}
	for name, intercept := range map[string]func(http.ResponseWriter, *http.Request) bool{
		"basic": registrytest.BasicAuth("ann", "pw"), "token": registrytest.TokenAuth(reg.Host, "ann", "pw"),
	} {
		t.Run(name, func(t *testing.T) {
			reg.On(intercept)
			if err := c.SignIn(t.Context(), reg.Host, ann("pw")); err != nil {
				t.Errorf("the right password: %v", err)
			}
			err := c.SignIn(t.Context(), reg.Host, ann("wr0ng"))
			wantCode(t, "a wrong password", err, sandbox.Forbidden)
			if strings.Contains(err.Error(), "wr0ng") {
				t.Errorf("the error tells the password: %v", err)
			}
		})
	}
	reg.On(func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusNotFound)
		return true
	})
	wantCode(t, "what is no registry", c.SignIn(t.Context(), reg.Host, ann("pw")), sandbox.Unavailable)
	wantCode(t, "a link-local address", c.SignIn(t.Context(), "169.254.169.254", ann("pw")), sandbox.Unavailable)
	asked := false
	reg.On(func(w http.ResponseWriter, r *http.Request) bool {
		asked = true
		w.Header().Set("WWW-Authenticate", `Bearer realm="http://registry.example/token",service="test"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	})
	wantCode(t, "a token server by plain http", c.SignIn(t.Context(), reg.Host, ann("pw")), sandbox.Unavailable)
	if !asked {
		t.Error("the registry was not asked")
	}
}
