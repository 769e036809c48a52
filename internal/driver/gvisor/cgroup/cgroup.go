package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Limits are the limits of a group. A value of 0 sets no limit.
type Limits struct {
	MemoryBytes int64
	CPUMilli    int64 // thousandths of a core
	Processes   int64 // processes and threads of the host, not of the guest
}

// Usage is the use of a group at a moment. Values that the host cannot measure are 0.
type Usage struct {
	MemoryBytes int64 // without page cache that the kernel could drop at once
	CPUNanos    int64
	Processes   int64 // of the host
	OOMKills    int64 // processes killed for memory since the group was made
}

// Controllers are the limits that groups of a [Parent] enforce.
type Controllers struct {
	Memory, CPU, Processes bool
}

// cpuPeriod is the period of the cpu limit in microseconds, the kernel's default.
const cpuPeriod = 100_000

// Parent holds the groups of one installation. It is safe for concurrent use.
type Parent struct {
	h      hierarchy
	ok     Controllers
	locked []*os.File // the locked directories
}

// Group is the group of a box. It is safe for concurrent use.
type Group struct {
	h  hierarchy
	id string
}

// hierarchy abstracts the differences between versions 1 and 2. IDs are names of groups.
type hierarchy interface {
	// dirs lists the directories of the group, first the directory that lists its processes.
	dirs(id string) []string
	// parents lists the directories that contain the groups.
	parents() []string
	// limit writes the limits into an existing group.
	limit(id string, l Limits) error
	// start runs fn so that processes it starts are born in the group.
	start(id string, fn func(*syscall.SysProcAttr) error) error
	// usage returns what the processes of a group have used, and how many they are.
	usage(id string) (Usage, error)
}

// Open makes the parent group called name and returns it with the controllers that work. No other
// server removes it until Close. It is made in parent, a path below the hierarchies' mount points;
// when that is empty, at the top for root, and in the group of this process for other users.
//
// Errors: when no controller can be used. The message says why and what to do.
func (h Host) Open(parent, name string) (*Parent, error) {
	const attempts = 10 // another server may remove an old group at this moment
	var err error
	for range attempts {
		var p *Parent
		if p, err = h.open(parent, name); err != nil {
			return nil, err
		}
		if err = p.lock(); err == nil {
			return p, nil
		}
		p.Close()
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return nil, err
}

func (h Host) open(parent, name string) (*Parent, error) {
	var errs []error
	var p Parent
	if h.V2 != "" {
		v, ok, err := openV2(h, parent, name)
		p, errs = Parent{h: v, ok: ok}, append(errs, err)
	} else {
		v, ok, err := openV1(h, parent, name)
		p, errs = Parent{h: v, ok: ok}, append(errs, err)
	}
	if p.ok == (Controllers{}) {
		if err := errors.Join(errs...); err != nil {
			return nil, err
		}
		return nil, errors.New("the host mounts no control groups at /sys/fs/cgroup")
	}
	return &p, nil
}

// Controllers returns the limits that work.
func (p *Parent) Controllers() Controllers { return p.ok }

// Group returns the group called id, which need not exist.
func (p *Parent) Group(id string) *Group { return &Group{h: p.h, id: id} }

// List returns the names of all groups, including incomplete groups.
func (p *Parent) List() ([]string, error) {
	var ids []string
	seen := map[string]bool{}
	for _, dir := range p.h.parents() {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("list groups: %w", err)
		}
		for _, e := range entries {
			if e.IsDir() && !seen[e.Name()] {
				seen[e.Name()] = true
				ids = append(ids, e.Name())
			}
		}
	}
	return ids, nil
}

// Remove removes the parent itself. It fails when it still has groups.
func (p *Parent) Remove() error {
	var errs []error
	for _, dir := range p.h.parents() {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Create makes the group and sets its limits. On an error nothing remains.
func (g *Group) Create(l Limits) error {
	for i, dir := range g.h.dirs(g.id) {
		if err := os.Mkdir(dir, 0o755); err != nil {
			for _, made := range g.h.dirs(g.id)[:i] {
				_ = os.Remove(made) // just made and empty
			}
			return fmt.Errorf("create group %s: %w", g.id, err)
		}
	}
	if err := g.h.limit(g.id, l); err != nil {
		for _, made := range g.h.dirs(g.id) {
			_ = os.Remove(made)
		}
		return fmt.Errorf("limit group %s: %w", g.id, err)
	}
	return nil
}

// Limit changes the limits of an existing group. Lowering memory below the current use fails with
// version 1, and kills processes with version 2.
func (g *Group) Limit(l Limits) error {
	if err := g.h.limit(g.id, l); err != nil {
		return fmt.Errorf("limit group %s: %w", g.id, err)
	}
	return nil
}

// Start calls fn, and processes that fn starts with the attributes it gets are created in the
// group. fn must start them on the calling goroutine.
func (g *Group) Start(fn func(*syscall.SysProcAttr) error) error { return g.h.start(g.id, fn) }

// Usage measures the group.
func (g *Group) Usage() (Usage, error) {
	u, err := g.h.usage(g.id)
	if err != nil {
		return Usage{}, fmt.Errorf("measure group %s: %w", g.id, err)
	}
	return u, nil
}

// Processes returns the host's IDs of the processes in the group, none when there is no such group.
func (g *Group) Processes() ([]int, error) {
	var pids []int
	for _, dir := range g.h.dirs(g.id) {
		data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list processes of group %s: %w", g.id, err)
		}
		for field := range strings.FieldsSeq(string(data)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
		if len(pids) > 0 {
			break
		}
	}
	return pids, nil
}

// Remove kills the processes of the group and removes it. It succeeds when the group does not exist.
// When ctx ends first it returns ctx's error with the last obstacle.
func (g *Group) Remove(ctx context.Context) error {
	const again = 2 * time.Millisecond // the kernel empties a group shortly after its last process ends
	for {
		err := g.removeOnce()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("remove group %s: %w: %w", g.id, ctx.Err(), err)
		case <-time.After(again):
		}
	}
}

func (g *Group) removeOnce() error {
	for _, dir := range g.h.dirs(g.id) {
		err := os.Remove(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if errors.Is(err, unix.EBUSY) {
			g.kill()
		}
		return err
	}
	return nil
}

// kill ends every process in the group. The group contains boxes, and briefly threads of this
// server, which cgroup.procs of version 1 shows as the server's process; so that process is
// skipped.
func (g *Group) kill() {
	pids, err := g.Processes()
	if err != nil {
		return
	}
	for _, pid := range pids {
		if pid != os.Getpid() && pid > 0 {
			_ = unix.Kill(pid, unix.SIGKILL) // gone already, or removing the group fails
		}
	}
}

// write sets one file of a group.
func write(dir, file string, value any) error {
	// No O_CREATE: a missing control file must be an error, in tests also.
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := fmt.Fprint(f, value); err != nil {
		return err
	}
	return f.Close()
}

// read reads a file of a group. A sweep reads five files of each box; for each, os.ReadFile makes ten system calls, and the kernel wakes the
// thread that waits for events.
func read(dir, file string) ([]byte, error) {
	name := filepath.Join(dir, file)
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd) //nolint:errcheck // it was only read
	for data := make([]byte, 0, 4096); ; data = slices.Grow(data, cap(data)) {
		for len(data) < cap(data) {
			n, err := unix.Read(fd, data[len(data):cap(data)])
			switch {
			case errors.Is(err, unix.EINTR):
			case err != nil:
				return nil, &fs.PathError{Op: "read", Path: name, Err: err}
			case n == 0:
				return data, nil
			default:
				data = data[:len(data)+n]
			}
		}
	}
}

// readInt reads a file that holds one number.
func readInt(dir, file string) (int64, error) {
	data, err := read(dir, file)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", file, err)
	}
	return n, nil
}

// readKey reads the number after key in a file of "key number" lines, and 0 when the key is not there.
func readKey(dir, file, key string) (int64, error) {
	data, err := read(dir, file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), " ")
		if k == key {
			return strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		}
	}
	return 0, nil
}
