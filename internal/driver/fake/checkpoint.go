package fake

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/modbox/modbox/internal/agent"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// Files of a checkpoint.
const (
	manifestName = "manifest.json"
	filesName    = "files.tar"
	layerName    = driver.LayerFile // not in every checkpoint
)

// manifest describes a checkpoint.
type manifest struct {
	Token     string // names the parked memory on the host; empty when the box went on
	RootFS    string
	FilesOnly bool // there is a layer and nothing else
}

// parked is the memory of a box that was saved and stopped: its agent, and its processes, which
// were sent SIGSTOP. dir has its files.
type parked struct {
	id     sandbox.ID
	dir    string
	agent  *agent.Agent
	accept *acceptor
	ports  map[uint16]string
}

// parking has the memory of stopped boxes. Hosts that are twins share it.
type parking struct {
	mu     sync.Mutex
	memory map[string]*parked // guarded by mu; by token
}

// discard ends and removes all memory.
func (p *parking) discard() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for token, m := range p.memory {
		errs = append(errs, m.discard())
		delete(p.memory, token)
	}
	return errors.Join(errs...)
}

// take removes and returns the memory of a box; nil if there is none.
func (p *parking) take(token string, id sandbox.ID) *parked {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.memory[token]
	if m == nil || m.id != id {
		return nil
	}
	delete(p.memory, token)
	return m
}

func (p *parked) discard() error {
	p.accept.Close()
	p.agent.Close()
	if err := killIn(p.dir); err != nil {
		return err
	}
	return os.RemoveAll(p.dir)
}

// Checkpoint saves a box's files and, with Stop, parks its memory on the host.
func (d *Driver) Checkpoint(ctx context.Context, id sandbox.ID, dir string, opts driver.CheckpointOptions) error {
	ctx, end, err := d.enter(ctx, id, func(f *Faults) Fault { return f.Checkpoint })
	if err != nil {
		return err
	}
	defer end()
	b, err := d.box(id)
	if err != nil {
		return err
	}
	b.destroying.Lock() // the box must not be destroyed meanwhile
	defer b.destroying.Unlock()
	if err := b.mustRun(); err != nil {
		return err
	}
	rootfs, err := b.image()
	if err != nil {
		return err
	}
	if _, err := os.Lstat(dir); err == nil {
		return sandbox.Errorf(sandbox.Exists, "the checkpoint exists already")
	}
	temp, err := os.MkdirTemp(filepath.Dir(dir), ".new-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	b.hangUp()
	if err := signalIn(b.dir, syscall.SIGSTOP); err != nil {
		return err
	}
	m := manifest{RootFS: rootfs, FilesOnly: opts.FilesOnly}
	if opts.Stop && !opts.FilesOnly {
		m.Token = rand.Text()
	}
	err = writeCheckpoint(temp, b.dir, m)
	if err == nil && (opts.Layer || opts.FilesOnly) {
		err = writeTar(filepath.Join(temp, layerName), b.dir, layerSkips)
	}
	if err == nil && !opts.FilesOnly {
		err = d.CanRestore(temp)
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = os.Rename(temp, dir)
	}
	if err == nil && opts.Stop && opts.Take != nil {
		if err = opts.Take(ctx, dir); err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}
	if err != nil || !opts.Stop {
		return errors.Join(err, signalIn(b.dir, syscall.SIGCONT))
	}
	if opts.FilesOnly {
		b.end(driver.Exit{Cause: sandbox.CauseDestroyed, Detail: "the box was saved and stopped"})
		return killIn(b.dir)
	}
	return d.host.park(b, m.Token)
}

func writeCheckpoint(dir, root string, m manifest) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, manifestName), data, 0o600); err != nil {
		return err
	}
	if m.FilesOnly {
		return nil
	}
	return writeTar(filepath.Join(dir, filesName), root, nil)
}

// writeTar writes the output of writeTree to a file.
func writeTar(name, root string, skip []string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(writeTree(f, root, skip, true), f.Close())
}

// OpenLayer returns the files that were saved with Layer.
func (d *Driver) OpenLayer(dir string) (io.ReadCloser, error) {
	f, err := os.Open(filepath.Join(dir, layerName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, sandbox.Wrap(sandbox.NotFound, err, "no files were saved with the checkpoint")
	}
	return f, err
}

// Verify checks which parts of a checkpoint exist, unless a fault decides for its memory.
func (d *Driver) Verify(ctx context.Context, dir string) (memory, files error) {
	_, end, memory := d.enter(ctx, "", func(f *Faults) Fault { return f.Verify })
	if memory == nil {
		defer end()
		_, memory = readManifest(dir)
	}
	layer, files := d.OpenLayer(dir)
	if files == nil {
		files = layer.Close()
	}
	return memory, files
}

func readManifest(dir string) (manifest, error) {
	var m manifest
	data, err := os.ReadFile(filepath.Join(dir, manifestName))
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err == nil {
		name := filesName
		if m.FilesOnly {
			name = layerName
		}
		_, err = os.Stat(filepath.Join(dir, name))
	}
	if err != nil {
		return manifest{}, sandbox.Wrap(sandbox.NotFound, err, "there is no complete checkpoint")
	}
	if m.FilesOnly {
		return manifest{}, driver.ErrNoMemory
	}
	return m, nil
}

// CanRestore checks whether dir is a checkpoint, unless a fault decides otherwise.
func (d *Driver) CanRestore(dir string) error {
	_, end, err := d.enter(context.Background(), "", func(f *Faults) Fault { return f.CanRestore })
	if err != nil {
		return err
	}
	defer end()
	_, err = readManifest(dir)
	return err
}

// Restore makes a box from a checkpoint. The first restore of a stopped box under its own ID gets
// its memory back; every other restore has its files, and a new agent.
func (d *Driver) Restore(ctx context.Context, spec driver.Spec, dir string) (driver.Handle, error) {
	ctx, end, err := d.enter(ctx, spec.ID, func(f *Faults) Fault { return f.Restore })
	if err != nil {
		return nil, err
	}
	defer end()
	if err := checkSpec(spec); err != nil {
		return nil, err
	}
	m, err := readManifest(dir)
	if err != nil {
		return nil, err
	}
	if filepath.Base(m.RootFS) != filepath.Base(spec.RootFS) { // hosts have the same image in other directories
		return nil, sandbox.InvalidField("rootfs", "this is not the image of the box that was saved")
	}
	b, err := d.host.add(spec)
	if err != nil {
		return nil, err
	}
	err = context.Cause(ctx)
	if err == nil {
		err = d.host.unpark(b, m.Token, filepath.Join(dir, filesName))
	}
	if err != nil {
		return nil, errors.Join(err, d.host.remove(spec.ID))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known[spec.ID] = b
	return driver.Handle(b.handle), nil
}

// park ends b and stores its memory under token.
func (h *Host) park(b *box, token string) error {
	p := &parked{id: b.spec.ID, dir: filepath.Join(h.dir, "parked-"+token)}
	if err := os.Rename(b.dir, p.dir); err != nil {
		return err
	}
	b.mu.Lock()
	p.agent, p.accept, p.ports = b.agent, b.accept, b.ports
	b.agent, b.accept = nil, nil
	b.mu.Unlock()
	h.parking.mu.Lock()
	h.parking.memory[token] = p
	h.parking.mu.Unlock()
	b.end(driver.Exit{Cause: sandbox.CauseDestroyed, Detail: "the box was saved and stopped"})
	return nil
}

// unpark turns a new box into the saved box: from its memory, if the host has it, and otherwise
// from its files.
func (h *Host) unpark(b *box, token, files string) error {
	p := h.parking.take(token, b.spec.ID)
	if err := os.RemoveAll(b.dir); err != nil {
		return err
	}
	if p == nil {
		if err := readTree(files, b.dir); err != nil {
			return err
		}
		return b.start()
	}
	if err := os.Rename(p.dir, b.dir); err != nil {
		return errors.Join(err, p.discard())
	}
	b.mu.Lock()
	b.agent, b.accept, b.ports = p.agent, p.accept, p.ports
	b.mu.Unlock()
	return signalIn(b.dir, syscall.SIGCONT)
}

// mustRun returns an error unless the box is running.
func (b *box) mustRun() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.ended:
		return sandbox.Errorf(sandbox.Unavailable, "box %s has ended", b.spec.ID)
	case b.agent == nil:
		return sandbox.Errorf(sandbox.Conflict, "box %s is not started", b.spec.ID)
	}
	return nil
}

// hangUp closes the box's connections; new connections can be made.
func (b *box) hangUp() {
	b.mu.Lock()
	conns := b.conns
	b.conns = make(map[net.Conn]struct{})
	b.mu.Unlock()
	for c := range conns {
		c.Close()
	}
}

// signalIn sends a signal to every process of a box, see [processesIn].
func signalIn(dir string, signal syscall.Signal) error {
	pids, err := processesIn(dir)
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}
