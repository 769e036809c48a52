package gvisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
	"gvisor.dev/gvisor/runsc/specutils"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// layout determines where a guest's writes are stored, and how large each place may be.
//
// A file in gVisor's memory is charged to the box, and the kernel can neither drop nor swap it. If
// such files could fill the memory limit, writing a file would kill the box. So each of them is
// bounded, and all bounds together leave memory for processes:
//
//	              small disk   large disk
//	root          1/4          on disk
//	/tmp          1/8          on disk
//	/dev/shm      1/8          1/8
//	/dev          1/16         1/16
type layout struct {
	OnDisk   bool  `json:"on_disk"`
	TmpBytes int64 `json:"tmp_bytes"`
	ShmBytes int64 `json:"shm_bytes"`
	// PlainTmp: /tmp is not a file system of its own.
	PlainTmp bool `json:"plain_tmp,omitempty"`
}

func layoutOf(s driver.Spec) layout {
	r := s.Resources
	l := layout{TmpBytes: r.MemoryBytes / 8, ShmBytes: r.MemoryBytes / 8, PlainTmp: s.PlainTmp}
	if r.DiskBytes > r.MemoryBytes/4 {
		// Builds and installers unpack into /tmp, so it is on disk also. It has its own limit
		// because it is a file system of its own.
		l.OnDisk, l.TmpBytes = true, r.DiskBytes/2
	}
	return l
}

// defaultTmpfs is the limit of memory file systems without an explicit limit: /dev, and file
// systems that a guest mounts in a namespace of its own.
func defaultTmpfs(r sandbox.Resources) int64 { return r.MemoryBytes / 16 }

// The layers that can be files in the layers directory, by their file suffixes.
const (
	rootLayer = ".root"
	tmpLayer  = ".tmp"
)

// mounts adds /tmp to spec and returns the mount configurations for gVisor of the root and of each
// mount backed by a file: images and layers, in the order of spec.
func (l layout) mounts(spec *specs.Spec, r sandbox.Resources, layersDir string) specutils.GoferMountConfFlags {
	tmp := specs.Mount{
		Destination: "/tmp", Type: "tmpfs", Source: "tmpfs",
		Options: []string{"nosuid", "nodev", "mode=1777", size(l.TmpBytes)},
	}
	root := specutils.GoferMountConf{Lower: specutils.Erofs, Upper: specutils.MemoryOverlay, Size: strconv.FormatInt(r.DiskBytes, 10)}
	agent := specutils.GoferMountConf{Lower: specutils.Erofs, Upper: specutils.NoOverlay}
	if l.OnDisk {
		root.Upper = specutils.AnonOverlay
	}
	switch {
	case l.PlainTmp:
		return specutils.GoferMountConfFlags{root, agent}
	case !l.OnDisk:
		spec.Mounts = append(spec.Mounts, tmp)
		return specutils.GoferMountConfFlags{root, agent}
	}
	// gVisor accepts a mount with a file behind it only when its type is bind; the source is not
	// used.
	tmp.Type, tmp.Source = "bind", layersDir
	spec.Mounts = append(spec.Mounts, tmp)
	return specutils.GoferMountConfFlags{root, agent, {Lower: specutils.NoneLower, Upper: specutils.AnonOverlay}}
}

// createLayers creates the files of a box whose layers are on disk, in the order in which
// [layout.mounts] names them.
func (l layout) createLayers(dir string, id sandbox.ID) ([]*os.File, error) {
	ends := []string{rootLayer, tmpLayer}
	if l.PlainTmp {
		ends = ends[:1]
	}
	var files []*os.File
	for _, end := range ends {
		f, err := os.OpenFile(filepath.Join(dir, string(id)+end), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			closeAll(files)
			return nil, fmt.Errorf("create writable layer: %w", err)
		}
		// gVisor maps the file. Some integrity measurements prevent that unless it was mapped
		// before; inside gVisor's system call filter it is too late for that.
		pgalloc.IMAWorkAroundForMemFile(f.Fd())
		files = append(files, f)
	}
	return files, nil
}

// removeLayers removes the files of a box; missing files are not an error.
func removeLayers(dir string, id sandbox.ID) error {
	var errs []error
	for _, end := range []string{rootLayer, tmpLayer} {
		if err := os.Remove(filepath.Join(dir, string(id)+end)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func layersDir(stateDir string) string { return filepath.Join(stateDir, "layers") }

// RemoveDeadLayers removes the layers of boxes without running processes, so that a server can
// start on a full disk: those boxes cannot be recovered. It returns the bytes freed. No server may
// use the state directory or make boxes meanwhile.
func RemoveDeadLayers(stateDir string) (freed int64, err error) {
	dir := layersDir(stateDir)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("list layers: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if _, ok := layerOwner(e.Name()); !ok {
			continue
		}
		n, err := removeUnused(filepath.Join(dir, e.Name()))
		freed += n
		errs = append(errs, err)
	}
	return freed, errors.Join(errs...)
}

// removeUnused removes a file that no process has open, and returns the bytes freed.
func removeUnused(path string) (freed int64, err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	// The kernel gives a write lease only to the sole opener of a file.
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EBUSY) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("find out whether %s is used: %w", path, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, err
	}
	if err := os.Remove(path); err != nil {
		return 0, err
	}
	return st.Blocks * 512, nil
}

// layerBytes returns how much disk a box's files use.
func layerBytes(dir string, id sandbox.ID) int64 {
	var total int64
	for _, end := range []string{rootLayer, tmpLayer} {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(dir, string(id)+end), &st); err == nil {
			total += st.Blocks * 512
		}
	}
	return total
}

// layerOwner returns the box that a file in the layers directory belongs to.
func layerOwner(name string) (sandbox.ID, bool) {
	for _, end := range []string{rootLayer, tmpLayer} {
		if id, ok := strings.CutSuffix(name, end); ok {
			return sandbox.ParseID(id)
		}
	}
	return "", false
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
