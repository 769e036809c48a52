package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"
)

// Free disk below which not even the images fit, and below which few sandboxes do.
const (
	diskFail = 3 << 30
	diskWarn = 10 << 30
)

// badStorage are filesystems that should not hold the state directory.
var badStorage = map[int64]string{
	unix.NFS_SUPER_MAGIC:  "NFS: locks and SQLite are not safe on it",
	unix.SMB2_SUPER_MAGIC: "SMB: locks and SQLite are not safe on it",
	unix.TMPFS_MAGIC:      "tmpfs: it fills memory and is lost at a restart",
	unix.RAMFS_MAGIC:      "ramfs: it fills memory and is lost at a restart",
}

func stateDir(_ context.Context, o Options) Result {
	const name = "state directory"
	st, at, err := statfs(o.StateDir)
	if err != nil {
		return fail(name, err.Error(), "")
	}
	if err := writable(at); err != nil {
		return fail(name, fmt.Sprintf("%s cannot be written: %v", at, err), "set state_dir to a directory of yours")
	}
	free := st.Bavail * uint64(st.Bsize)
	detail := fmt.Sprintf("%s, %s free", o.StateDir, humanize.IBytes(free))
	const fix = "set state_dir to a directory on a local disk with more room"
	if what, bad := badStorage[st.Type]; bad {
		return warn(name, detail+", on "+what, fix)
	}
	switch {
	case free < diskFail:
		return fail(name, detail, fix)
	case free < diskWarn:
		return warn(name, detail+": little room for sandboxes", fix)
	}
	return ok(name, detail)
}

func capacity(_ context.Context, o Options) Result {
	const name = "capacity"
	detail, err := o.Capacity()
	if err != nil {
		return warn(name, err.Error(), "")
	}
	return ok(name, detail)
}

func runDir(_ context.Context, o Options) Result {
	const name = "run directory"
	st, at, err := statfs(o.RunDir)
	if err != nil {
		return fail(name, err.Error(), "")
	}
	if err := writable(at); err != nil {
		return fail(name, fmt.Sprintf("%s cannot be written: %v", at, err), "set run_dir to a directory of yours")
	}
	if st.Type != unix.TMPFS_MAGIC {
		return warn(name, o.RunDir+" is not on tmpfs: remains of sandboxes outlive a restart of the host until the server sweeps them",
			"set run_dir to a directory on tmpfs, which /run is on most systems")
	}
	return ok(name, o.RunDir+" on tmpfs")
}

// statfs looks at path, or its nearest parent that exists, which it returns.
func statfs(path string) (st unix.Statfs_t, at string, err error) {
	for at = path; ; at = filepath.Dir(at) {
		err = unix.Statfs(at, &st)
		if !errors.Is(err, fs.ErrNotExist) || at == filepath.Dir(at) {
			return st, at, err
		}
	}
}

func writable(dir string) error { return unix.Access(dir, unix.W_OK|unix.X_OK) }

// portTime bounds asking who listens on the server's port.
const portTime = 2 * time.Second

func port(ctx context.Context, o Options) Result {
	const name = "port"
	l, err := net.Listen("tcp", o.Listen)
	if err == nil {
		_ = l.Close() // it listened a moment only
		return ok(name, o.Listen+" is free")
	}
	ctx, cancel := context.WithTimeout(ctx, portTime)
	defer cancel()
	for _, scheme := range []string{"http", "https"} {
		req, reqErr := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+o.Listen+"/healthz", nil)
		if reqErr != nil {
			break
		}
		resp, doErr := http.DefaultClient.Do(req)
		if doErr != nil {
			continue
		}
		_ = resp.Body.Close() // only the status counts
		if resp.StatusCode == http.StatusOK {
			return ok(name, "a server answers at "+o.Listen)
		}
	}
	return fail(name, err.Error(), "end what listens there, or set listen to another address")
}

// keyring verifies Debian's packages; Ubuntu does not install it by itself.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

func tools(_ context.Context, _ Options) Result {
	const name = "image tools"
	var missing []string
	for program, pkg := range map[string]string{"mmdebstrap": "mmdebstrap", "npm": "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, pkg)
		}
	}
	if _, err := os.Stat(keyring); err != nil {
		missing = append(missing, "debian-archive-keyring")
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		list := strings.Join(missing, " ")
		return warn(name, list+" not installed: images cannot be built here", "apt-get install "+list)
	}
	return ok(name, "mmdebstrap, npm and Debian's keyring are installed")
}

func images(ctx context.Context, o Options) Result {
	const name = "images"
	built, err := o.Images(ctx)
	if err != nil {
		return fail(name, err.Error(), "")
	}
	var there, missing []string
	for ref, isBuilt := range built {
		if isBuilt {
			there = append(there, ref)
		} else {
			missing = append(missing, ref)
		}
	}
	slices.Sort(there)
	slices.Sort(missing)
	const fix = "modbox images build"
	switch {
	case len(there) == 0:
		return fail(name, "none is built", fix)
	case len(missing) > 0:
		return warn(name, strings.Join(there, ", ")+" built; not built: "+strings.Join(missing, ", "), fix)
	}
	return ok(name, strings.Join(there, ", ")+" built")
}
