package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/auth/sso/ssotest"
	"github.com/modbox/modbox/internal/cli/base"
)

// TestMain makes this program also a browser, when a test starts it as a browser: it follows
// redirects, with cookies.
func TestMain(m *testing.M) {
	ssotest.Main()
	if os.Getenv("MODBOX_TEST_BROWSER") == "" {
		os.Exit(m.Run())
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		panic(err)
	}
	resp, err := (&http.Client{Jar: jar, Timeout: time.Minute}).Get(os.Args[1])
	if err != nil {
		panic(err)
	}
	fmt.Println(resp.Status)
}

// person is a user at a terminal, with files of its own.
type person struct {
	t    *testing.T
	home string
	env  []string
}

func newPerson(t *testing.T, s *apitest.Server, env ...string) *person {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	env = append(env, "HOME="+home, "BROWSER="+self, "MODBOX_TEST_BROWSER=1")
	return &person{t: t, home: home, env: env}
}

func (p *person) try(ctx context.Context, stdin io.Reader, args ...string) result {
	var out, errOut bytes.Buffer
	a := &base.Env{Stdin: stdin, Stdout: &out, Stderr: &errOut, Environ: p.env}
	code := execute(ctx, a, args)
	return result{code, out.String(), errOut.String()}
}

func (p *person) run(args ...string) string {
	p.t.Helper()
	r := p.try(p.t.Context(), strings.NewReader(""), args...)
	if r.code != 0 {
		p.t.Fatalf("modbox %v = %+v", args, r)
	}
	return r.stdout
}

func (p *person) file() string { return filepath.Join(p.home, ".config", "modbox", "credentials.json") }

// expire has the access token of every login be past its time.
func (p *person) expire() {
	p.t.Helper()
	c, err := base.ReadCredentials(p.file())
	if err != nil {
		p.t.Fatal(err)
	}
	for server, l := range c.Servers {
		l.Expires = time.Now()
		c.Servers[server] = l
	}
	if err := base.WriteCredentials(p.file(), c); err != nil {
		p.t.Fatal(err)
	}
}

func TestLoginInABrowser(t *testing.T) {
	i := ssotest.New(t)
	s := apitest.NewWith(t, nil, i.Providers("example.com")...)
	ada := newPerson(t, s)
	ada.run("login", s.URL, "--provider", "acme")
	if info, err := os.Stat(ada.file()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("credentials: %v, %v", info, err)
	}
	// Commands go to the server of the sign-in.
	if who := ada.run("whoami"); !strings.Contains(who, "ada@example.com") || !strings.Contains(who, s.URL) {
		t.Errorf("whoami: %s", who)
	}
	var who struct{ Email string }
	if err := json.Unmarshal([]byte(ada.run("whoami", "--json")), &who); err != nil || who.Email != "ada@example.com" {
		t.Errorf("whoami --json: %+v, %v", who, err)
	}
	before, err := os.ReadFile(ada.file())
	if err != nil {
		t.Fatal(err)
	}
	ada.run("logout")
	if after, err := os.ReadFile(ada.file()); err != nil || strings.Contains(string(after), "mbr_") {
		t.Errorf("credentials after logout: %s, %v", after, err)
	}
	if err := os.WriteFile(ada.file(), before, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := ada.try(t.Context(), strings.NewReader(""), "whoami"); r.code != base.ExitFailure || !strings.Contains(r.stderr, "modbox login") {
		t.Errorf("whoami by a session that was signed out: %+v", r)
	}
}

func TestLoginIsRefreshedByManyAtOnce(t *testing.T) {
	i := ssotest.New(t)
	s := apitest.NewWith(t, nil, i.Providers("example.com")...)
	ada := newPerson(t, s, "MODBOX_URL="+s.URL+"/")
	ada.run("login", "--provider", "github")
	for range 3 {
		ada.expire()
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if r := ada.try(t.Context(), strings.NewReader(""), "workspace", "ls"); r.code != 0 {
					t.Errorf("workspace ls = %+v", r)
				}
			})
		}
		all.Wait()
	}
	ada.run("whoami")
}

func TestLoginWithoutABrowser(t *testing.T) {
	i := ssotest.New(t)
	s := apitest.NewWith(t, nil, i.Providers("example.com")...)
	ada := newPerson(t, s, "MODBOX_URL="+s.URL)
	// The user reads the page's address, opens it elsewhere, and types what it shows.
	typed, types := io.Pipe()
	shown, shows := io.Pipe()
	a := &base.Env{Stdin: typed, Stdout: io.Discard, Stderr: shows, Environ: ada.env}
	done := make(chan int, 1)
	go func() {
		done <- execute(t.Context(), a, []string{"login", "--provider", "acme", "--no-browser"})
		shows.Close()
	}()
	var screen strings.Builder
	page := regexp.MustCompile(`http://\S+\n`)
	for b := make([]byte, 1024); !page.MatchString(screen.String()); {
		n, err := shown.Read(b)
		if err != nil {
			t.Fatalf("the screen shows %q: %v", screen.String(), err)
		}
		screen.Write(b[:n])
	}
	go func() { _, _ = io.Copy(io.Discard, shown) }()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Jar: jar}).Get(strings.TrimSpace(page.FindString(screen.String())))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	code := regexp.MustCompile(`<code>(.*)</code>`).FindSubmatch(body)
	if err != nil || code == nil {
		t.Fatalf("the page: %s, %v", body, err)
	}
	fmt.Fprintf(types, "%s\n", code[1])
	if exit := <-done; exit != 0 {
		t.Fatalf("login ended with %d", exit)
	}
	if who := ada.run("whoami"); !strings.Contains(who, "ada@example.com") {
		t.Errorf("whoami: %s", who)
	}
}

func TestLoginThatIsRefused(t *testing.T) {
	i := ssotest.New(t)
	s := apitest.NewWith(t, nil, i.Providers()...) // nobody was invited
	ada := newPerson(t, s, "MODBOX_URL="+s.URL)
	for name, tc := range map[string]struct {
		args []string
		code int
		says string
	}{
		"not_invited":      {[]string{"login", "--provider", "acme"}, base.ExitFailure, "there is no account for ada@example.com"},
		"no_such_provider": {[]string{"login", "--provider", "other"}, base.ExitUsage, "acme, github"},
		"name_too":         {[]string{"login", "ada", "--provider", "acme"}, base.ExitUsage, "NAME"},
		"wrong_code":       {[]string{"login", "--provider", "acme", "--no-browser"}, base.ExitFailure, "unauthenticated"},
		"two_servers":      {[]string{"login", "http://127.0.0.1:1", "--url", "http://127.0.0.1:2"}, base.ExitUsage, "two servers"},
	} {
		t.Run(name, func(t *testing.T) {
			r := ada.try(t.Context(), strings.NewReader("made-up\n"), tc.args...)
			if r.code != tc.code || !strings.Contains(r.stderr, tc.says) {
				t.Errorf("modbox %v = %+v, want code %d and %q", tc.args, r, tc.code, tc.says)
			}
			if _, err := os.Stat(ada.file()); err == nil {
				t.Error("a login was kept")
			}
		})
	}
}

// A token that was given for one server is not sent to another that somebody signed in to.
func TestGivenTokenStaysWithItsServer(t *testing.T) {
	a := &base.Env{Environ: []string{"HOME=" + t.TempDir()}}
	a.URL = "https://box.example.com"
	if err := a.StoreLogin(t.Context(), base.Login{Token: "mbx_x"}); err != nil {
		t.Fatal(err)
	}
	a.URL = ""
	if got := a.ServerURL(); got != "https://box.example.com" {
		t.Errorf("serverURL() = %q, want that of the last login", got)
	}
	a = &base.Env{Environ: a.Environ, Token: "mbx_other"}
	if got := a.ServerURL(); got != base.DefaultURL {
		t.Errorf("serverURL() with a token = %q, want %q", got, base.DefaultURL)
	}
}

// A command that goes on while somebody signs in to another server stays with its
// own, and does not get the other's token.
func TestCommandStaysWithItsServer(t *testing.T) {
	a := &base.Env{Environ: []string{"HOME=" + t.TempDir()}}
	soon := time.Now().Add(time.Hour)
	for _, server := range []string{"https://one.example.com", "https://two.example.com"} {
		other := &base.Env{Environ: a.Environ, URL: server}
		if err := other.StoreLogin(t.Context(), base.Login{Access: "of " + server, Refresh: "mbr_x", Expires: soon}); err != nil {
			t.Fatal(err)
		}
		if got := a.ServerURL(); got != "https://one.example.com" {
			t.Errorf("after the login to %s the command is with %s", server, got)
		}
		if token, err := a.SessionToken(t.Context()); err != nil || token != "of https://one.example.com" {
			t.Errorf("after the login to %s the token is the one %s, %v", server, token, err)
		}
	}
	if err := a.ForgetLogin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if kept := a.StoredCredentials(); kept.Current != "https://two.example.com" || len(kept.Servers) != 1 {
		t.Errorf("after a logout from the first server: %+v", kept)
	}
	// A session that a sign-in by an earlier version has replaced.
	b := &base.Env{Environ: a.Environ, URL: "https://two.example.com"}
	if err := b.StoreLogin(t.Context(), base.Login{Token: "mbx_x"}); err != nil {
		t.Fatal(err)
	}
	if token, err := b.SessionToken(t.Context()); err != nil || token != "mbx_x" {
		t.Errorf("the token after a sign-in by an earlier version is %q, %v", token, err)
	}
}
