package gvisor

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/cpuid"

	"github.com/modbox/modbox/internal/driver/gvisor/chunksum"
	"github.com/modbox/modbox/internal/sandbox"
)

// Files of a checkpoint. The first three are gVisor's, in the order in which it takes them; pages
// has the memory and the files of layers on disk.
const (
	stateFile    = "state.img"
	pagesIndex   = "pages.meta"
	pagesFile    = "pages.img"
	manifestName = "manifest.json"
	// manifestCopy has the same content as the manifest: damage to one of the two does no harm.
	manifestCopy = "manifest.copy.json"
	// layerFile has the written files as a layer; not every checkpoint has it.
	layerFile = "layer.tar"

	manifestFormat = 2
	// manifestPlain is the format without digests.
	manifestPlain = 1
	maxManifest   = 8 << 20 // digests of 128 GiB take 3 MiB
)

var savedFiles = []string{stateFile, pagesIndex, pagesFile}

// manifest describes a checkpoint and what it needs.
type manifest struct {
	Format int       `json:"format"`
	GVisor string    `json:"gvisor"` // gVisor's version; another version may misread its state
	CPU    cpu       `json:"cpu"`
	Agent  string    `json:"agent"` // name of the agent's image, which is a hash of its content
	RootFS imageMark `json:"rootfs"`
	// State of the guest's kernel, which is restored unchanged.
	Layout       layout            `json:"layout"`
	Resources    sandbox.Resources `json:"resources"`
	MaxProcesses int64             `json:"max_processes"`
	// Files has the size of each file, by name; of a layer only when it has sums.
	Files map[string]int64 `json:"files"`
	// Sums has the digests of each file, by name. Checkpoints of format 1, and checkpoints that
	// this server made only for itself and restores immediately, have none.
	Sums map[string]chunksum.Sums `json:"sums,omitempty"`
}

// sealed is a manifest as it is written: with a digest of itself. To a program that knows only
// format 1 it has an unknown format.
type sealed struct {
	Format   int             `json:"format"`
	Digest   []byte          `json:"digest"`
	Manifest json.RawMessage `json:"manifest"`
}

// writeManifest measures the files in dir and writes m there.
func writeManifest(dir string, m manifest) error {
	m.Files = map[string]int64{}
	for _, name := range savedFiles {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		m.Files[name] = info.Size()
	}
	if s, ok := m.Sums[layerFile]; ok {
		m.Files[layerFile] = s.Size
	}
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	digest := chunksum.Digest(body)
	data, err := json.Marshal(sealed{Format: m.Format, Digest: digest[:], Manifest: body})
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, manifestName), data, 0o600),
		os.WriteFile(filepath.Join(dir, manifestCopy), data, 0o600))
}

// sumFiles returns the digests of a checkpoint's files in dir.
func sumFiles(ctx context.Context, dir string) (map[string]chunksum.Sums, error) {
	sums := map[string]chunksum.Sums{}
	for _, name := range append([]string{layerFile}, savedFiles...) {
		s, err := sumFile(ctx, filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) && name == layerFile {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("digest of %s: %w", name, err)
		}
		sums[name] = s
	}
	return sums, nil
}

func sumFile(ctx context.Context, name string) (chunksum.Sums, error) {
	f, err := os.Open(name)
	if err != nil {
		return chunksum.Sums{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return chunksum.Sums{}, err
	}
	return chunksum.Of(ctx, f, info.Size())
}

// openSaved opens a file of a checkpoint; it refuses links and special files.
func openSaved(dir, name string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, errors.Join(err, fmt.Errorf("%s is not a regular file", name))
	}
	return f, nil
}

// openCheckpoint reads a checkpoint's manifest and opens its files, whose sizes must match it.
// Anything else is not a complete checkpoint.
func openCheckpoint(dir string) (m manifest, files []*os.File, err error) {
	defer func() {
		if err != nil {
			closeAll(files)
			m, files = manifest{}, nil
			if unreadable(err) {
				return
			}
			err = sandbox.Wrap(sandbox.NotFound, err, "there is no complete checkpoint")
		}
	}()
	if m, err = readManifest(dir); err != nil {
		return m, nil, err
	}
	for _, name := range savedFiles {
		f, err := openSaved(dir, name)
		if err != nil {
			return m, files, err
		}
		files = append(files, f)
		info, err := f.Stat()
		if err != nil {
			return m, files, err
		}
		if want, ok := m.Files[name]; !ok || info.Size() != want {
			return m, files, fmt.Errorf("%s has %d bytes, want %d", name, info.Size(), want)
		}
	}
	return m, files, nil
}

// unreadable reports whether an error tells nothing about the files of a checkpoint: it concerns
// this process and may be gone the next time.
func unreadable(err error) bool {
	for _, no := range []syscall.Errno{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EACCES, unix.EPERM, unix.EINTR} {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}

// readManifest reads the manifest in dir, or its copy when that is damaged.
func readManifest(dir string) (manifest, error) {
	m, err := readOneManifest(dir, manifestName)
	if err == nil {
		return m, nil
	}
	m, cerr := readOneManifest(dir, manifestCopy)
	if cerr != nil {
		return manifest{}, errors.Join(err, cerr)
	}
	return m, nil
}

func readOneManifest(dir, name string) (m manifest, err error) {
	f, err := openSaved(dir, name)
	if err != nil {
		return m, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxManifest))
	if err != nil {
		return m, err
	}
	var outer sealed
	if err := json.Unmarshal(data, &outer); err != nil {
		return m, fmt.Errorf("%s: %w", name, err)
	}
	if outer.Manifest == nil { // the format without digests
		if outer.Format >= manifestFormat {
			return m, fmt.Errorf("%s of format %d is empty", name, outer.Format)
		}
		err := json.Unmarshal(data, &m)
		return m, err
	}
	if digest := chunksum.Digest(outer.Manifest); !bytes.Equal(digest[:], outer.Digest) {
		return m, fmt.Errorf("%s differs from its digest", name)
	}
	err = json.Unmarshal(outer.Manifest, &m)
	return m, err
}

// restorable reports whether this driver on this host can restore a checkpoint.
func (d *Driver) restorable(m manifest) error {
	unsupported := func(format string, args ...any) error {
		return sandbox.Errorf(sandbox.Unsupported, "the checkpoint cannot be restored here: "+format, args...)
	}
	if m.Format < manifestPlain || m.Format > manifestFormat {
		return unsupported("its format is %d, this server knows %d to %d", m.Format, manifestPlain, manifestFormat)
	}
	if m.GVisor == "" || m.GVisor != d.runtime {
		return unsupported("it was made by gVisor %s, this server has %s", cmp.Or(m.GVisor, "of an unknown version"), d.runtime)
	}
	if reason := m.CPU.missingOn(d.cpu); reason != "" {
		return unsupported("%s", reason)
	}
	if m.Agent != filepath.Base(m.Agent) || !strings.HasSuffix(m.Agent, agentSuffix) {
		return unsupported("it names no agent")
	}
	if _, err := os.Stat(filepath.Join(d.agentsDir(), m.Agent)); errors.Is(err, fs.ErrNotExist) {
		return unsupported("the agent that it was made with is not on this host")
	} else if err != nil {
		return fmt.Errorf("look for agent %s: %w", m.Agent, err)
	}
	return nil
}

// runtimeVersion returns the version of gVisor from which an executable was built.
func runtimeVersion(path string) (string, error) {
	const module = "gvisor.dev/gvisor"
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("version of %s: %w", path, err)
	}
	for _, dep := range info.Deps {
		if dep.Path != module {
			continue
		}
		if dep.Replace != nil {
			dep = dep.Replace
		}
		return dep.Version, nil
	}
	return "", fmt.Errorf("version of %s: it does not contain %s", path, module)
}

// cpu has the properties of a processor that programs query once and then rely on.
type cpu struct {
	Arch      string   `json:"arch"`
	Flags     []string `json:"flags"`
	CacheLine uint32   `json:"cache_line"`
}

// hostCPU describes the processor of this host.
func hostCPU() cpu {
	cpuid.Initialize()
	host := cpuid.HostFeatureSet()
	return cpu{Arch: runtime.GOARCH, Flags: strings.Fields(host.FlagString()), CacheLine: cacheLine(host)}
}

// missingOn returns what c has and host lacks; empty when nothing.
func (c cpu) missingOn(host cpu) string {
	if c.Arch != host.Arch {
		return fmt.Sprintf("it was made on %s, this host is %s", c.Arch, host.Arch)
	}
	var missing []string
	for _, flag := range c.Flags {
		if !slices.Contains(host.Flags, flag) {
			missing = append(missing, flag)
		}
	}
	if len(missing) > 0 {
		return fmt.Sprintf("this host's processor lacks %s", strings.Join(missing, ", "))
	}
	if c.CacheLine != host.CacheLine {
		return fmt.Sprintf("it was made with cache lines of %d bytes, this host has %d", c.CacheLine, host.CacheLine)
	}
	return ""
}

// imageMark distinguishes images without reading them whole: an image begins with a superblock that
// has its checksum and sizes, and the inodes of the root.
type imageMark struct {
	Size int64  `json:"size"`
	Head string `json:"head"` // hash of its beginning
}

func markImage(path string) (imageMark, error) {
	f, err := os.Open(path)
	if err != nil {
		return imageMark{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return imageMark{}, err
	}
	const head = 64 << 10
	sum := sha256.New()
	if _, err := io.CopyN(sum, f, head); err != nil && !errors.Is(err, io.EOF) {
		return imageMark{}, err
	}
	return imageMark{Size: info.Size(), Head: hex.EncodeToString(sum.Sum(nil))}, nil
}
