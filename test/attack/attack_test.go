package attack_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/loopfs"
	"github.com/modbox/modbox/test/testserver"
)

const (
	password = "a-long-passw0rd"
	// diskSize is little more than what the sandboxes of one workspace may write.
	diskSize = 4 << 30
	// quietRounds are the rounds of the neighbour before the attack, attackedRounds the
	// fewest during it, and fullRounds the rounds that begin after the disk was full.
	quietRounds, attackedRounds, fullRounds = 5, 2, 2
	// timeLimit bounds a call of the neighbour: a call that takes longer has failed.
	timeLimit = 2 * time.Minute
	// lastsAtMost bounds the attack.
	lastsAtMost = 10 * time.Minute
	// diskFreed is in the server's log when it ends a sandbox because the disk is full.
	diskFreed = "a sandbox is ended to free space"
)

// rig is a server on a small disk with two workspaces, each of a user of its own.
type rig struct {
	*testserver.Server
	t                   *testing.T
	fs                  *loopfs.FS
	attacker, neighbour *client.Client
	neighbourHTTP       *http.Client // from an address of its own, so that connections of the attacker do not displace its connections
	emptyFiles          v1.Image     // an image of many empty files
}

func newRig(t *testing.T) *rig {
	t.Helper()
	fs := loopfs.New(t, diskSize)
	r := &rig{t: t, fs: fs, Server: testserver.StartIn(t, fs.Dir)}
	var err error
	if r.emptyFiles, err = emptyFilesImage(); err != nil {
		t.Fatal(err)
	}
	own := &http.Transport{DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext}
	t.Cleanup(own.CloseIdleConnections)
	r.neighbourHTTP = &http.Client{Transport: own}
	r.attacker, r.neighbour = r.user("mallory", http.DefaultClient), r.user("ann", r.neighbourHTTP)
	return r
}

// user makes a user with a workspace and returns a client that acts in it.
func (r *rig) user(name string, over *http.Client) *client.Client {
	r.t.Helper()
	if _, err := r.Users.Create(r.t.Context(), client.UserOptions{Name: name, Password: password}); err != nil {
		r.t.Fatal(err)
	}
	return r.signIn(name, over)
}

// signIn makes a token of a user and returns a client with it.
func (r *rig) signIn(name string, over *http.Client) *client.Client {
	r.t.Helper()
	api, err := client.New(r.URL, "", client.WithAttempts(1), client.WithHTTPClient(over))
	if err != nil {
		r.t.Fatal(err)
	}
	signedIn, err := api.Account.Login(r.t.Context(), name, password)
	if err != nil {
		r.t.Fatal(err)
	}
	token, err := api.WithToken(signedIn.AccessToken).Tokens.Create(r.t.Context(), "test", client.TokenOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return api.WithToken(token.Secret)
}

// took records how long the neighbour's calls took, by their names.
type took map[string][]time.Duration

func (m took) String() string {
	var b strings.Builder
	for _, name := range []string{"create", "exec", "destroy", "sign-in"} {
		d := slices.Sorted(slices.Values(m[name]))
		if len(d) == 0 {
			continue
		}
		fmt.Fprintf(&b, "%s p50 %v p99 %v; ", name, d[len(d)/2].Round(time.Millisecond), d[len(d)*99/100].Round(time.Millisecond))
	}
	return b.String()
}

// work is one round of the neighbour: a sandbox is made, used and destroyed, and its user
// signs in. Every call must succeed.
func (r *rig) work(times took) {
	r.t.Helper()
	call := func(name string, f func(context.Context) error) {
		r.t.Helper()
		ctx, cancel := context.WithTimeout(r.t.Context(), timeLimit)
		defer cancel()
		began := time.Now()
		if err := f(ctx); err != nil {
			r.t.Errorf("the neighbour's %s: %v", name, err)
		}
		times[name] = append(times[name], time.Since(began))
	}
	var id string
	call("create", func(ctx context.Context) error {
		sb, err := r.neighbour.Sandboxes.Create(ctx, client.CreateOptions{TTL: 10 * time.Minute, WaitUpTo: timeLimit})
		if err != nil {
			return err
		}
		if id = sb.ID; sb.State != client.Running {
			return fmt.Errorf("sandbox is %s: %v", sb.State, sb.Cause)
		}
		return nil
	})
	if id == "" {
		return
	}
	call("exec", func(ctx context.Context) error {
		res, err := r.neighbour.Sandboxes.Exec(ctx, id, client.Command{Argv: []string{"echo", "fine"}})
		if err == nil && string(res.Stdout) != "fine\n" {
			return fmt.Errorf("answered %+v", res)
		}
		return err
	})
	call("destroy", func(ctx context.Context) error {
		_, err := r.neighbour.Sandboxes.Delete(ctx, id)
		return err
	})
	call("sign-in", func(ctx context.Context) error {
		_, err := r.neighbour.Account.Login(ctx, "ann", password)
		return err
	})
}

// attack is a way to harm the server. It repeats until ctx ends and counts its attempts; it expects
// refusals.
type attack struct {
	name string
	run  func(ctx context.Context, r *rig, done *atomic.Int64)
}

func TestNeighbourGoesOnUnderAttack(t *testing.T) {
	r := newRig(t)
	quiet, attacked := took{}, took{}
	for range quietRounds {
		r.work(quiet)
	}
	ctx, stop := context.WithCancel(t.Context())
	var under sync.WaitGroup
	counts := map[string]*atomic.Int64{}
	attacks := []attack{
		{"fill the disk", fillDisk},
		{"expand variables", expandVariables},
		{"pull empty files", pullEmptyFiles},
		{"send no body", sendNoBody},
		{"pin the memory of calls", pinMemory},
	}
	for _, a := range attacks {
		n := &atomic.Int64{}
		counts[a.name] = n
		under.Go(func() { a.run(ctx, r, n) })
	}
	// Every attack has begun before the neighbour's calls count.
	for _, a := range attacks {
		for deadline := time.Now().Add(timeLimit); counts[a.name].Load() == 0; time.Sleep(10 * time.Millisecond) { // polling other goroutines
			if time.Now().After(deadline) {
				t.Fatalf("attack %q did nothing in %v", a.name, timeLimit)
			}
		}
	}
	// The neighbour works until the disk was full, and goes on.
	full := 0
	for i, deadline := 0, time.Now().Add(lastsAtMost); i < attackedRounds || full < fullRounds; i++ {
		if strings.Contains(r.Log(), diskFreed) {
			full++
		} else if time.Now().After(deadline) {
			t.Errorf("the attack did not fill the disk: %d MiB are free", r.fs.Free()>>20)
			break
		}
		r.work(attacked)
	}
	stop()
	under.Wait()
	for name, n := range counts {
		t.Logf("%s: %d times", name, n.Load())
	}
	t.Logf("quiet:    %v", quiet)
	t.Logf("attacked: %v", attacked)
	t.Logf("sandboxes ended to free the disk: %d", strings.Count(r.Log(), diskFreed))
	t.Logf("free on the disk at the end: %d MiB of %d", r.fs.Free()>>20, int64(diskSize)>>20)
	// After the attack the server starts and works again without help.
	r.Kill()
	r.Launch()
	r.neighbour = r.signIn("ann", r.neighbourHTTP)
	r.work(took{})
}

// until repeats f until ctx ends; a second of pause follows a refusal.
func until(ctx context.Context, n *atomic.Int64, f func() error) {
	for ctx.Err() == nil {
		n.Add(1)
		err := f()
		if err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
}

// fillDisk writes zeros in two sandboxes, and replaces the sandboxes when they end. Zeros occupy the disk as random bytes do.
func fillDisk(ctx context.Context, r *rig, n *atomic.Int64) {
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			until(ctx, n, func() error {
				sb, err := r.attacker.Sandboxes.Create(ctx, client.CreateOptions{TTL: 10 * time.Minute, WaitUpTo: timeLimit})
				if err != nil {
					return err
				}
				defer func() { _, _ = r.attacker.Sandboxes.Delete(context.WithoutCancel(ctx), sb.ID) }()
				_, err = r.attacker.Sandboxes.Exec(ctx, sb.ID, client.Command{
					Argv: []string{"/bin/sh", "-c", "dd if=/dev/zero of=$HOME/big bs=1M; sleep 20"}, Timeout: timeLimit,
				})
				return err
			})
		})
	}
	both.Wait()
}

// expandVariables builds Dockerfiles whose words are as expensive to expand as possible,
// and leaves some before the answer.
func expandVariables(ctx context.Context, r *rig, n *atomic.Int64) {
	var file strings.Builder
	value := strings.Repeat("a", 32<<10)
	fmt.Fprintf(&file, "ARG X=%s\nARG P=%s*b\n", value, strings.Repeat("a*", 4<<10))
	for i := range 16 {
		fmt.Fprintf(&file, "ARG Y%d=${X%%%%$P}\n", i)
	}
	file.WriteString("FROM scratch\n")
	leave := false
	until(ctx, n, func() error {
		ctx, cancel := ctx, context.CancelFunc(func() {})
		if leave = !leave; leave {
			ctx, cancel = context.WithTimeout(ctx, time.Second)
		}
		defer cancel()
		_, err := r.attacker.Images.Build(ctx, client.ImageBuildOptions{Dockerfile: []byte(file.String())}, bytes.NewReader(make([]byte, 1024)), nil)
		return err
	})
}

// sendNoBody opens connections that announce a body and never send it, without a token
// and with one.
func sendNoBody(ctx context.Context, r *rig, n *atomic.Int64) {
	server, err := url.Parse(r.URL)
	if err != nil {
		r.t.Error(err)
		return
	}
	var many sync.WaitGroup
	for i := range 400 {
		many.Go(func() {
			until(ctx, n, func() error {
				conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", server.Host)
				if err != nil {
					return err
				}
				defer context.AfterFunc(ctx, func() { conn.Close() })()
				defer conn.Close()
				path := []string{"/v1/sandboxes", "/v1/auth/login", "/sandboxes/provision", "/v1/images/build"}[i%4]
				if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n", path); err != nil {
					return err
				}
				n.Add(1)
				if _, err := io.Copy(io.Discard, conn); err != nil { // until the server closes it
					return err
				}
				return errors.New("closed")
			})
		})
	}
	many.Wait()
}

// pinMemory starts commands that read nothing of the megabytes they are sent.
func pinMemory(ctx context.Context, r *rig, n *atomic.Int64) {
	input := make([]byte, 11<<20)
	var many sync.WaitGroup
	var box atomic.Pointer[string]
	for range 30 {
		many.Go(func() {
			until(ctx, n, func() error {
				if box.Load() == nil {
					sb, err := r.attacker.Sandboxes.Create(ctx, client.CreateOptions{Name: "pin", TTL: 10 * time.Minute, WaitUpTo: timeLimit})
					if err != nil {
						return err
					}
					box.Store(&sb.ID)
				}
				id := box.Load()
				_, err := r.attacker.Sandboxes.Exec(ctx, *id, client.Command{Argv: []string{"sleep", "20"}, Stdin: input, Timeout: timeLimit})
				if client.IsCode(err, client.NotFound) || client.IsCode(err, "ended") {
					box.CompareAndSwap(id, nil)
				}
				return err
			})
		})
	}
	many.Wait()
}
