package rootfs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/share"
)

// The memory of a file, as measured, rounded up.
const (
	nameBytes  = 288 // a name in a directory, and its node
	dirBytes   = 320 // additional bytes of a directory
	writeBytes = 736 // additional bytes of a name while the root filesystem is written, and twice its path
)

const (
	// leastMemory is the least default memory of a [Scratch].
	leastMemory = 512 << 20
	// memoryStep is the unit in which trees take memory.
	memoryStep = 256 << 10
	// memoryWait bounds the time for which a tree waits for memory that other trees use.
	memoryWait = 2 * time.Minute
	// memoryRetry is the time after which a client should retry then.
	memoryRetry = 30 * time.Second
)

// defaultMemory returns the default memory of all trees together.
func defaultMemory() int64 {
	var machine unix.Sysinfo_t
	if err := unix.Sysinfo(&machine); err != nil {
		return leastMemory // on Linux this does not fail
	}
	return max(leastMemory, int64(machine.Totalram)*int64(machine.Unit)/16)
}

// Scratch is the memory and the directory that all work on root filesystems shares. It is
// safe for concurrent use.
type Scratch struct {
	dir    string
	memory *share.Budget
	own    atomic.Int64 // number of trees without a workspace so far
}

// NewScratch returns a scratch with a directory for unnamed temporary files, and with memory bytes
// for the names and nodes of files; 0 is a sixteenth of the machine's memory, and 512 MiB at least.
func NewScratch(dir string, memory int64) *Scratch {
	return &Scratch{dir: dir, memory: share.New(cmp.Or(memory, defaultMemory()), memoryWait)}
}

// Memory returns the bytes that all trees take at the moment, and their highest sum so far.
func (s *Scratch) Memory() (now, peak int64) { return s.memory.Used() }

// Tree returns an empty tree for a workspace, "" for the server's own work. Its Close frees its
// memory. The end of the context ends waits for memory.
func (s *Scratch) Tree(ctx context.Context, owner sandbox.WorkspaceID) *Tree {
	key := string(owner)
	if key == "" {
		key = fmt.Sprint("own ", s.own.Add(1)) // so that the server's trees do not share a single part
	}
	t := newTree()
	t.memory = &treeMemory{ctx: ctx, account: s.memory.Open(key), all: s.memory}
	return t
}

// treeMemory counts the memory of a tree, which all trees of a [Scratch] share: a layer of
// some megabytes may have millions of files. The methods of a nil treeMemory do nothing.
type treeMemory struct {
	ctx     context.Context // the context of the work on the tree
	account *share.Account
	all     *share.Budget
	owed    int64 // bytes used and not yet taken
}

// Close frees the memory of the tree.
func (t *Tree) Close() {
	if t.memory != nil {
		t.memory.account.Close()
	}
}

// add counts a name and its node. Errors: TooLarge; Unavailable; the context's.
func (m *treeMemory) add(base string, n *node) error {
	if m == nil {
		return nil
	}
	m.owed += nameBytes + int64(len(base)+len(n.target))
	if n.mode.IsDir() {
		m.owed += dirBytes
	}
	if m.owed < memoryStep {
		return nil
	}
	owed := m.owed
	m.owed = 0
	return m.take(m.ctx, owed)
}

// take takes n bytes.
func (m *treeMemory) take(ctx context.Context, n int64) error {
	if m == nil {
		return nil
	}
	switch err := m.account.Take(ctx, n); {
	case errors.Is(err, share.ErrTooLarge):
		return sandbox.Errorf(sandbox.TooLarge, "it has too many files, or too long names: they take more memory than the server has for one image, %d MiB (two thirds of images.memory)", m.all.Total()/3*2>>20)
	case errors.Is(err, share.ErrBusy):
		e := sandbox.Errorf(sandbox.Unavailable, "other images that are being made leave too little memory for its files (images.memory); try again")
		e.RetryAfter = memoryRetry
		return e
	default:
		return err
	}
}

// give gives n bytes back.
func (m *treeMemory) give(n int64) {
	if m != nil {
		m.account.Give(n)
	}
}
