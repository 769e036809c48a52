package image

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/share"
)

// What a file costs in memory, as measured, rounded up.
const (
	nameBytes  = 288 // a name in a directory, and its node
	dirBytes   = 320 // of a directory more
	writeBytes = 736 // of a name more while the root filesystem is written, and its path twice
)

const (
	// leastMemory is the least that [Options.Memory] is when it is not given.
	leastMemory = 512 << 20
	// memoryStep is how much of it is taken at a time.
	memoryStep = 256 << 10
	// memoryPatience is how long a tree waits for memory that others have.
	memoryPatience = 2 * time.Minute
	// memoryRetry is when to try again what has waited for that long.
	memoryRetry = 30 * time.Second
)

// defaultMemory is the memory of all trees together when [Options.Memory] is 0.
func defaultMemory() int64 {
	var machine unix.Sysinfo_t
	if err := unix.Sysinfo(&machine); err != nil {
		return leastMemory // Linux knows it
	}
	return max(leastMemory, int64(machine.Totalram)*int64(machine.Unit)/16)
}

// treeMemory counts the memory that a tree takes of what all trees of a store have
// together: a layer of some megabytes may have millions of files. The methods of a nil one
// do nothing.
type treeMemory struct {
	ctx     context.Context // ends what makes the tree
	account *share.Account
	store   *share.Budget
	owed    int64 // bytes that are not taken yet
}

// newTree returns an empty tree for a workspace, "" for the server's own work. Its memory
// is given back by its close.
func (s *Store) newTree(ctx context.Context, owner sandbox.WorkspaceID) *tree {
	key := string(owner)
	if key == "" {
		key = fmt.Sprint("own ", s.ownTrees.Add(1)) // none of which stands for a workspace
	}
	t := newTree()
	t.memory = &treeMemory{ctx: ctx, account: s.memory.Open(key), store: s.memory}
	return t
}

// close gives the memory of a tree back.
func (t *tree) close() {
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
		return sandbox.Errorf(sandbox.TooLarge, "it has too many files, or too long names: they take more memory than the server has for one image, %d MiB (two thirds of images.memory)", m.store.Total()/3*2>>20)
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

// Memory returns how many bytes all trees of files take at the moment, and the most that
// they took at a time.
func (s *Store) Memory() (now, peak int64) { return s.memory.Used() }
