package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/statedir"
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
	if open, err := statedir.Open(o.StateDir); err == nil && open {
		return warn(name, o.StateDir+" can be entered by other users, who may read sandboxes' files there", "the next start of the server closes it; until then: chmod 700 "+o.StateDir)
	}
	free := st.Bavail * uint64(st.Bsize)
	detail := fmt.Sprintf("%s, %s free", o.StateDir, humanize.IBytes(free))
	const fix = "set state_dir to a directory on a local disk with more space"
	if what, bad := badStorage[st.Type]; bad {
		return warn(name, detail+", on "+what, fix)
	}
	switch {
	case free < diskFail:
		return fail(name, detail, fix)
	case free < diskWarn:
		return warn(name, detail+": little space for sandboxes", fix)
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

// statfs returns the file system of path or of its nearest parent that exists, and that path.
func statfs(path string) (st unix.Statfs_t, at string, err error) {
	for at = path; ; at = filepath.Dir(at) {
		err = unix.Statfs(at, &st)
		if !errors.Is(err, fs.ErrNotExist) || at == filepath.Dir(at) {
			return st, at, err
		}
	}
}

func writable(dir string) error { return unix.Access(dir, unix.W_OK|unix.X_OK) }

func port(_ context.Context, o Options) Result {
	const name = "port"
	l, err := net.Listen("tcp", o.Listen)
	if err == nil {
		_ = l.Close() // it listened only for a moment
		return ok(name, o.Listen+" is free")
	}
	if o.Running != "" && isSameAddress(o.Running, o.Listen) {
		return ok(name, "the server of this state directory listens at "+o.Running)
	}
	return fail(name, err.Error()+"; it is not the server of this state directory", "end what listens there, or set listen to another address")
}

// isSameAddress reports whether a server that listens on one address prevents a server on the
// other.
func isSameAddress(one, other string) bool {
	a, err := net.ResolveTCPAddr("tcp", one)
	b, otherErr := net.ResolveTCPAddr("tcp", other)
	everywhere := func(ip net.IP) bool { return ip == nil || ip.IsUnspecified() }
	return err == nil && otherErr == nil && a.Port == b.Port && (a.IP.Equal(b.IP) || everywhere(a.IP) || everywhere(b.IP))
}

// keyring verifies Debian's packages; Ubuntu does not install it by default.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

func tools(_ context.Context, _ Options) Result {
	const name = "image tools"
	var missing []string
	wanted := map[string]string{"mmdebstrap": "mmdebstrap", "npm": "npm"}
	if os.Geteuid() != 0 { // for the users who own files of images
		wanted["newuidmap"] = "uidmap"
	}
	for program, pkg := range wanted {
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
	if os.Geteuid() != 0 {
		if lacks := withoutSubordinates("/etc/subuid", "/etc/subgid"); lacks != "" {
			return warn(name, lacks+" has no entry for this user: images cannot be built here", "as root: usermod --add-subuids 100000-165535 --add-subgids 100000-165535 USER")
		}
	}
	return ok(name, "mmdebstrap, npm and Debian's keyring are installed")
}

// withoutSubordinates returns the first of the files, like /etc/subuid, without an entry for this
// user; "" when all have an entry.
func withoutSubordinates(files ...string) string {
	names := []string{strconv.Itoa(os.Geteuid())}
	if u, err := user.Current(); err == nil {
		names = append(names, u.Username)
	}
	for _, file := range files {
		text, _ := os.ReadFile(file) // a file that cannot be read has no entry
		found := false
		for line := range strings.Lines(string(text)) {
			name, _, _ := strings.Cut(line, ":")
			found = found || slices.Contains(names, name)
		}
		if !found {
			return file
		}
	}
	return ""
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
