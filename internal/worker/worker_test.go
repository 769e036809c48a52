package worker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// testTimeout is how long a test waits for an event. Nothing takes so long unless it never happens.
const testTimeout = 2 * time.Minute

// control is a listener for workers, with its token.
type control struct {
	*Listener
	dir, token string
	only       atomic.Pointer[Identity] // refuses others; nil refuses none
	attached   chan string              // ids of workers
	leave      func(context.Context, Identity) error
}

func newControl(t *testing.T) *control {
	t.Helper()
	c := &control{dir: filepath.Join(t.TempDir(), "worker"), attached: make(chan string, 8)}
	a, err := OpenAuthority(c.dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(c.dir, TokenFile))
	if err != nil {
		t.Fatal(err)
	}
	c.token = string(text)
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.Listener = Listen(plain, a, Uses{
		Check: func(w Identity) error {
			if only := c.only.Load(); only != nil && *only != w {
				return sandbox.Errorf(sandbox.Conflict, "this server has the worker %s", only.ID)
			}
			return nil
		},
		Attach: func(_ context.Context, w Identity, conn net.Conn) error {
			c.attached <- w.ID
			_, err := io.Copy(conn, conn)
			return err
		},
		Leave: func(ctx context.Context, w Identity) error { return c.leave(ctx, w) },
	}, slog.New(slog.DiscardHandler))
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// dialer returns the dialer of a worker with a token.
func (c *control) dialer(t *testing.T, token string) *Dialer {
	t.Helper()
	s, err := OpenState(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	d, err := NewDialer([]string{c.Addr().String()}, s, token, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// echoes checks that a connection is attached.
func echoes(_ context.Context, conn net.Conn) error {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(testTimeout))
	if _, err := conn.Write([]byte("hello")); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, 5))
	return err
}

func TestJoin(t *testing.T) {
	c := newControl(t)
	d := c.dialer(t, c.token)
	for range 2 { // the second time with the certificate of the first
		if err := d.once(t.Context(), echoes); err != nil {
			t.Fatalf("connect: %v", err)
		}
		if id := <-c.attached; id != d.id {
			t.Errorf("the worker is %q, want %q", id, d.id)
		}
	}
	if life := time.Until(d.cert.Leaf.NotAfter); life > certificateLife {
		t.Errorf("the certificate is valid for %v", life)
	}
	first := d.cert
	d.cert.Leaf.NotAfter = time.Now().Add(leastLife / 2)
	if err := d.once(t.Context(), echoes); err != nil || d.cert == first {
		t.Errorf("an old certificate was not replaced, %v", err)
	}
	a, err := OpenAuthority(c.dir) // the same, as after a restart
	if err != nil || digest(a.cert.Raw) != d.token.authority || a.secret != d.token.secret {
		t.Errorf("OpenAuthority() again is another, or %v", err)
	}
	for _, name := range []string{TokenFile, authorityFile} {
		if info, err := os.Stat(filepath.Join(c.dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, %v", name, info.Mode(), err)
		}
	}
}

func TestRefused(t *testing.T) {
	c, other := newControl(t), newControl(t)
	wrong := c.dialer(t, c.token)
	wrong.token.secret += "x"
	if err := wrong.once(t.Context(), echoes); err == nil || !strings.Contains(err.Error(), "token is not this server's") {
		t.Errorf("a wrong secret: %v", err)
	}
	if err := c.dialer(t, other.token).once(t.Context(), echoes); err == nil || !strings.Contains(err.Error(), "token is not of this server") {
		t.Errorf("a token of another server: %v", err)
	}
	badID := c.dialer(t, c.token)
	badID.id = "../../x"
	if err := badID.once(t.Context(), echoes); err == nil || !strings.Contains(err.Error(), "not the id of a worker") {
		t.Errorf("a bad id: %v", err)
	}
	foreign := other.dialer(t, other.token)
	if err := foreign.join(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.only.Store(&Identity{"worker-A", "b"})
	if err := c.dialer(t, c.token).once(t.Context(), echoes); err == nil || !strings.Contains(err.Error(), "this server has the worker") {
		t.Errorf("another worker: %v", err)
	}
	for name, certs := range map[string][]tls.Certificate{"none": nil, "of another server": {*foreign.cert}} {
		conn, err := c.dialer(t, c.token).dial(t.Context(), protocolConnect, certs...)
		if err == nil { // in TLS 1.3 the client hears of it with its first read
			err = echoes(t.Context(), conn)
		}
		if err == nil {
			t.Errorf("a worker with a certificate, %s, was attached", name)
		}
	}
	select {
	case id := <-c.attached:
		t.Errorf("%s was attached", id)
	default:
	}
	for _, text := range []string{"", "x", "mbw_x", "mbw_x.00", "tok_x." + strings.Repeat("0", 64)} {
		if _, err := NewDialer([]string{"127.0.0.1:1"}, &State{}, text, nil); err == nil {
			t.Errorf("NewDialer() with the token %q succeeded", text)
		}
	}
	for _, addresses := range [][]string{nil, {"localhost"}, {"127.0.0.1:1", "localhost"}} {
		if _, err := NewDialer(addresses, &State{}, c.token, nil); err == nil {
			t.Errorf("NewDialer(%q) succeeded", addresses)
		}
	}
}

// TestTokensOfSuppliedWorkers checks that the token of a worker whose id the server has chosen joins that worker alone, and that it joins with
// no other token.
func TestTokensOfSuppliedWorkers(t *testing.T) {
	c := newControl(t)
	own, other := NewSuppliedID(), NewSuppliedID()
	for name, test := range map[string]struct {
		id, token string // id "" is an ordinary worker
		joins     bool
	}{
		"its own":                           {own, c.authority.TokenFor(own), true},
		"of another Pod":                    {own, c.authority.TokenFor(other), false},
		"of workers":                        {own, c.token, false},
		"of a Pod, by an ordinary worker":   {"", c.authority.TokenFor(own), false},
		"of workers, by an ordinary worker": {"", c.authority.TokenFor("wrk_1"), true},
	} {
		t.Run(name, func(t *testing.T) {
			d := c.dialer(t, test.token)
			if test.id != "" {
				d.id = test.id
			}
			err := d.once(t.Context(), echoes)
			if test.joins {
				if err != nil {
					t.Fatalf("connect: %v", err)
				}
				if id := <-c.attached; id != d.id {
					t.Errorf("the worker is %q, want %q", id, d.id)
				}
			} else if err == nil || !strings.Contains(err.Error(), "token is not this server's") {
				t.Errorf("connect = %v, want that the token is refused", err)
			}
		})
	}
}

// TestSeveralAddresses checks that a worker finds the address where its control plane is now.
func TestSeveralAddresses(t *testing.T) {
	c := newControl(t)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	other := newControl(t) // of another authority
	d := c.dialer(t, c.token)
	d.addresses = []string{closed.Addr().String(), other.Addr().String(), c.Addr().String()}
	for range 4 { // each begins with another address
		if err := d.once(t.Context(), echoes); err != nil {
			t.Fatalf("connect: %v", err)
		}
		<-c.attached
	}
	d.addresses = d.addresses[:2]
	if err := d.once(t.Context(), echoes); err == nil || !strings.Contains(err.Error(), "refused") || !strings.Contains(err.Error(), "token is not of this server") {
		t.Errorf("without its control plane: %v, want the error of each address", err)
	}
}

// TestRefusedByOthers checks that a worker goes on to the next address when a server with its authority refuses it, for its sandboxes and when it leaves.
func TestRefusedByOthers(t *testing.T) {
	c := newControl(t)
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	other := Listen(plain, c.authority, Uses{
		Check: func(Identity) error { return nil },
		Attach: func(_ context.Context, _ Identity, conn net.Conn) error {
			refused++
			_ = conn.Close()
			return ErrElsewhere
		},
		Leave: func(context.Context, Identity) error { return ErrElsewhere },
	}, slog.New(slog.DiscardHandler))
	d := c.dialer(t, c.token)
	_, port, _ := net.SplitHostPort(other.Addr().String())
	d.addresses = []string{"localhost:" + port, c.Addr().String()}
	for n := range 2 {
		if err := d.once(t.Context(), echoes); err != nil {
			t.Fatalf("connect: %v", err)
		}
		if <-c.attached; n == 0 {
			d.leaveAt() // no address is tried before the first again
			d.at = ""
		}
	}
	left := false
	c.leave = func(context.Context, Identity) error {
		left = true
		return nil
	}
	d.at = ""
	if err := d.Leave(t.Context()); err != nil || !left {
		t.Errorf("Leave() = %v", err)
	}
	_ = other.Close()
	if refused != 2 {
		t.Errorf("the other server has refused %d times, want 2", refused)
	}
}

// TestSilentAddress checks that a worker does not try an address without an answer for a while, if there is another.
func TestSilentAddress(t *testing.T) {
	c := newControl(t)
	d := c.dialer(t, c.token)
	own := c.Addr().String()
	d.addresses = []string{"192.0.2.1:7071", own} // nobody has the first, but a router may say so
	d.silent["192.0.2.1:7071"] = time.Now()
	if err := d.once(t.Context(), echoes); err != nil {
		t.Fatalf("connect: %v", err)
	}
	<-c.attached
	if list := d.order(t.Context()); len(list) != 1 || list[0] != own || d.among != 2 {
		t.Errorf("order() = %v of %d", list, d.among)
	}
	d.silent[own] = time.Now()
	if list := d.order(t.Context()); len(list) != 2 {
		t.Errorf("without an address that answers order() = %v", list)
	}
	for address := range d.silent {
		d.silent[address] = time.Now().Add(-2 * silentTime)
	}
	if list := d.order(t.Context()); len(list) != 2 || len(d.silent) != 0 {
		t.Errorf("after a while order() = %v", list)
	}
	ctx, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	if _, err := d.connect(ctx, own); err == nil || d.silent[own].IsZero() {
		t.Errorf("connect() without time = %v, and %v", err, d.silent)
	}
}

// TestSilentClients checks that clients that say nothing do not keep workers away for ever.
func TestSilentClients(t *testing.T) {
	c := newControl(t)
	for range maxGreets {
		conn, err := net.Dial("tcp", c.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	d := c.dialer(t, c.token)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	d.Run(ctx, func(ctx context.Context, conn net.Conn) error {
		err := echoes(ctx, conn)
		if err == nil {
			cancel()
		}
		return err
	})
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Error("beside silent clients no worker can connect")
	}
}

func TestState(t *testing.T) {
	dir := t.TempDir()
	s, err := OpenState(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		installation string
		epoch        int64
		want         sandbox.Code
	}{{"a", 5, ""}, {"a", 5, ""}, {"a", 4, sandbox.Conflict}, {"b", 9, sandbox.Conflict}, {"a", 7, ""}, {"a", 6, sandbox.Conflict}} {
		if err := s.Accept(step.installation, step.epoch); sandbox.CodeOf(err) != step.want {
			t.Errorf("Accept(%s, %d) = %v, want %q", step.installation, step.epoch, err, step.want)
		}
	}
	again, err := OpenState(dir, "")
	if err != nil || again.ID() != s.ID() {
		t.Fatalf("OpenState() again = %v, %v", again, err)
	}
	if err := again.Accept("a", 6); sandbox.CodeOf(err) != sandbox.Conflict {
		t.Errorf("after a restart Accept(a, 6) = %v", err)
	}
	bad, _ := json.Marshal(kept{ID: "x"})
	for _, text := range []string{"{", string(bad)} {
		if err := os.WriteFile(filepath.Join(dir, stateFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenState(dir, ""); err == nil || !strings.Contains(err.Error(), stateFile) {
			t.Errorf("OpenState() of %q = %v, want an error with the path", text, err)
		}
	}
}

// TestLeave checks that a worker that leaves waits for the server, and gets its error; a server refuses strangers.
func TestLeave(t *testing.T) {
	c := newControl(t)
	d := c.dialer(t, c.token)
	said := make(chan string, 1)
	c.leave = func(_ context.Context, w Identity) error {
		said <- w.ID
		return nil
	}
	if err := d.Leave(t.Context()); err != nil || len(said) == 0 || <-said != d.id {
		t.Errorf("Leave() = %v", err)
	}
	c.leave = func(context.Context, Identity) error {
		return sandbox.Errorf(sandbox.Unavailable, "the server is starting")
	}
	if err := d.Leave(t.Context()); err == nil || !strings.Contains(err.Error(), "the server is starting") {
		t.Errorf("Leave() = %v, want the error of the server", err)
	}
	begun, ended := make(chan struct{}), make(chan struct{})
	c.leave = func(ctx context.Context, _ Identity) error {
		close(begun)
		<-ctx.Done()
		close(ended)
		return ctx.Err()
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-begun
		cancel()
	}()
	if err := d.Leave(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Leave() after the end of its context = %v", err)
	}
	select {
	case <-ended:
	case <-time.After(testTimeout):
		t.Error("the server goes on for a worker that does not wait")
	}
	c.only.Store(&Identity{ID: "another"})
	if err := d.Leave(t.Context()); err == nil {
		t.Error("a worker that the server refuses can leave")
	}
}

// TestReadAuthority reads the files of a mounted Secret: its directory is open to a group, and Helm writes another form of the key.
func TestReadAuthority(t *testing.T) {
	c := newControl(t)
	made, err := OpenAuthority(c.dir)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalECPrivateKey(made.key)
	if err != nil {
		t.Fatal(err)
	}
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made.cert.Raw}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: key})...)
	if err := errors.Join(os.WriteFile(filepath.Join(c.dir, authorityFile), text, 0o600), os.Chmod(c.dir, 0o750)); err != nil {
		t.Fatal(err)
	}
	a, err := ReadAuthority(c.dir)
	if err != nil || !a.key.Equal(made.key) || a.secret != made.secret {
		t.Errorf("ReadAuthority() = %+v, %v", a, err)
	}
	if info, err := os.Stat(c.dir); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("the directory has mode %v, %v", info.Mode(), err)
	}
	for _, name := range []string{TokenFile, authorityFile} {
		if err := os.Remove(filepath.Join(c.dir, name)); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadAuthority(c.dir); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), name) {
			t.Errorf("ReadAuthority() without %s = %v, want an error with the path", name, err)
		}
	}
}

func TestDamagedAuthority(t *testing.T) {
	c, other := newControl(t), newControl(t)
	for _, file := range []struct{ name, content string }{{TokenFile, "x"}, {TokenFile, other.token}, {authorityFile, "x"}} {
		name, content := file.name, file.content
		if err := os.WriteFile(filepath.Join(c.dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenAuthority(c.dir); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("OpenAuthority() with another %s = %v, want an error with the path", name, err)
		}
	}
}
