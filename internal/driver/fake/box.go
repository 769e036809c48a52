package fake

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/modbox/modbox/internal/agent"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// box is the host's state of a box. Its states are created, started, ended.
type box struct {
	spec   driver.Spec
	handle string
	dir    string

	destroying sync.Mutex // held by destroy and Checkpoint

	mu      sync.Mutex
	rootfs  string                // guarded by mu; of the spec, or given by Furnish
	agent   *agent.Agent          // guarded by mu; nil until started
	accept  *acceptor             // guarded by mu; the agent's listener
	ended   bool                  // guarded by mu
	exit    driver.Exit           // guarded by mu; valid when ended
	conns   map[net.Conn]struct{} // guarded by mu; made by Dial
	ports   map[uint16]string     // guarded by mu; see Host.Listen
	nic     *driver.NIC           // guarded by mu; nil without
	usage   driver.Usage          // guarded by mu; see Host.SetUsage
	endedCh chan struct{}         // closed when ended
}

func newBox(spec driver.Spec, dir string) *box {
	return &box{
		spec: spec, rootfs: spec.RootFS, dir: dir, handle: handlePrefix + rand.Text(),
		conns: make(map[net.Conn]struct{}), ports: make(map[uint16]string), endedCh: make(chan struct{}),
	}
}

// fill extracts the files of the box's root image if that is a tar. Any other image counts as
// empty.
func (b *box) fill() error {
	b.mu.Lock()
	rootfs := b.rootfs
	b.mu.Unlock()
	if filepath.Ext(rootfs) != ".tar" {
		return nil
	}
	if err := os.RemoveAll(b.dir); err != nil {
		return err
	}
	return readTree(rootfs, b.dir)
}

// furnish gives a blank box a root filesystem.
func (b *box) furnish(rootfs string) error {
	b.mu.Lock()
	if b.rootfs != "" {
		b.mu.Unlock()
		return sandbox.Errorf(sandbox.Conflict, "box %s has a root filesystem", b.spec.ID)
	}
	b.rootfs = rootfs
	b.mu.Unlock()
	return b.fill()
}

// image returns the box's root filesystem; Conflict when it is blank.
func (b *box) image() (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rootfs == "" {
		return "", sandbox.Errorf(sandbox.Conflict, "box %s has no root filesystem yet", b.spec.ID)
	}
	return b.rootfs, nil
}

// start runs the agent.
func (b *box) start() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.ended:
		return sandbox.Errorf(sandbox.Unavailable, "box %s has ended", b.spec.ID)
	case b.agent != nil:
		return sandbox.Errorf(sandbox.Conflict, "box %s was started before", b.spec.ID)
	}
	b.agent = agent.New(agent.Options{Version: "fake", Root: b.dir})
	b.accept = newAcceptor()
	go b.agent.Serve(b.accept) // ends with the acceptor
	return nil
}

// end stops everything that runs, and records how the box ended.
func (b *box) end(exit driver.Exit) {
	b.mu.Lock()
	if b.ended {
		b.mu.Unlock()
		return
	}
	b.ended, b.exit = true, exit
	a, accept := b.agent, b.accept
	conns := b.conns
	b.conns = nil
	b.mu.Unlock()
	for c := range conns {
		c.Close()
	}
	if a != nil {
		accept.Close()
		a.Close()
	}
	_ = b.replaceNIC(nil)
	close(b.endedCh)
}

// destroy ends the box and removes its files.
func (b *box) destroy() error {
	b.destroying.Lock()
	defer b.destroying.Unlock()
	b.end(driver.Exit{Cause: sandbox.CauseDestroyed, Detail: "the box was destroyed"})
	<-b.endedCh // another call may be ending it
	if err := killIn(b.dir); err != nil {
		return err
	}
	return os.RemoveAll(b.dir)
}

// dialAgent connects to the agent.
func (b *box) dialAgent() (net.Conn, error) {
	b.mu.Lock()
	accept := b.accept
	b.mu.Unlock()
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	if !accept.put(theirs) {
		ours.Close()
		theirs.Close()
		return nil, sandbox.Errorf(sandbox.PortClosed, "the agent of box %s does not listen", b.spec.ID)
	}
	return ours, nil
}

// keep records a connection, so that it ends with the box.
func (b *box) keep(c net.Conn) (net.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		c.Close()
		return nil, sandbox.Errorf(sandbox.Unavailable, "box %s has ended", b.spec.ID)
	}
	b.conns[c] = struct{}{}
	return &boxConn{Conn: c, box: b}, nil
}

// boxConn is a connection made by Dial.
type boxConn struct {
	net.Conn
	box *box
}

func (c *boxConn) Close() error {
	c.box.mu.Lock()
	delete(c.box.conns, c.Conn)
	c.box.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite ends this direction only.
func (c *boxConn) CloseWrite() error {
	return c.Conn.(interface{ CloseWrite() error }).CloseWrite()
}

// socketPair returns the two ends of a connection with the buffers of a real connection.
func socketPair() (net.Conn, net.Conn, error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	var conns [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socketpair")
		conns[i], err = net.FileConn(f) // duplicates the descriptor
		f.Close()
		if err != nil {
			return nil, nil, errors.Join(err, closeAll(conns[:i]))
		}
	}
	return conns[0], conns[1], nil
}

func closeAll(conns []net.Conn) error {
	for _, c := range conns {
		c.Close()
	}
	return nil
}

// acceptor is a listener that accepts the connections put into it.
type acceptor struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func newAcceptor() *acceptor {
	return &acceptor{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (a *acceptor) put(c net.Conn) bool {
	select {
	case a.conns <- c:
		return true
	case <-a.done:
		return false
	}
}

func (a *acceptor) Accept() (net.Conn, error) {
	select {
	case c := <-a.conns:
		return c, nil
	case <-a.done:
		return nil, net.ErrClosed
	}
}

func (a *acceptor) Close() error {
	a.once.Do(func() { close(a.done) })
	return nil
}

func (a *acceptor) Addr() net.Addr { return &net.UnixAddr{Name: "fake", Net: "unix"} }

// killIn kills every process of a box.
func killIn(dir string) error {
	const timeout = time.Minute
	for end := time.Now().Add(timeout); ; time.Sleep(time.Millisecond) {
		left, err := processesIn(dir)
		if err != nil || len(left) == 0 {
			return err
		}
		for _, pid := range left {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d processes in %s do not end", len(left), dir)
		}
	}
}

// processesIn lists the processes whose working directory is below dir: the processes of a box on
// this machine.
func processesIn(dir string) ([]int, error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer func() { _ = proc.Close() }()
	names, err := proc.Readdirnames(-1) // without the status of each, which filepath.Glob asks for
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == os.Getpid() {
			continue
		}
		if cwd, err := os.Readlink("/proc/" + name + "/cwd"); err == nil && (cwd == dir || strings.HasPrefix(cwd, dir+"/")) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
