package recipe

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/sandbox"
)

// Bootstrapper makes the files of an image.
type Bootstrapper interface {
	// Bootstrap writes the root filesystem that the job describes to w as one tar stream. It returns
	// an error when the stream is not complete, and changes nothing outside job.Dir, also when ctx
	// ends.
	Bootstrap(ctx context.Context, job Job, w io.Writer) error
}

// Job describes a root filesystem to make.
type Job struct {
	Recipe *Recipe
	// Dir is an empty directory for temporary files; its owner removes it.
	Dir string
	// Progress receives events. It is never nil.
	Progress func(phase.Event)
}

// Debian makes root filesystems from Debian packages with mmdebstrap, from npm packages with npm, as both
// are configured on this host, and from Python packages with the pip of the new root filesystem. It needs root, or
// an ordinary user with entries in /etc/subuid and /etc/subgid.
type Debian struct {
	// Mirror is the base address of a Debian mirror, optional: mmdebstrap knows Debian's own.
	Mirror string
}

var _ Bootstrapper = Debian{}

//go:embed finish.sh
var finishScript string

// finishName is the path of finishScript in the staging directory.
const finishName = ".finish.sh"

// stagingDir is the recipe's build directory while the image is made.
const stagingDir = "/.modbox-build"

// stopGrace is the time that mmdebstrap has to clean up after SIGTERM.
const stopGrace = 20 * time.Second

// forward runs a command and forwards a SIGTERM to all processes of the group: mmdebstrap itself,
// which expects this of a terminal, waits for its children.
const forward = `trap 'trap "" TERM; kill -TERM 0; wait; exit 143' TERM; "$@" & wait $!`

// leftOut are paths that no image contains: documentation and translations. Licences stay.
var leftOut = []string{
	"path-exclude=/usr/share/doc/*", "path-include=/usr/share/doc/*/copyright",
	"path-exclude=/usr/share/man/*", "path-exclude=/usr/share/info/*", "path-exclude=/usr/share/groff/*",
	"path-exclude=/usr/share/locale/*", "path-include=/usr/share/locale/locale.alias",
	"path-exclude=/usr/share/lintian/*", "path-exclude=/usr/share/bug/*", "path-exclude=/usr/share/linda/*",
}

// Bootstrap implements [Bootstrapper]. Errors: Unavailable when a program is missing on this host
// or fails; the message ends with the program's last messages.
func (d Debian) Bootstrap(ctx context.Context, job Job, w io.Writer) error {
	program, err := exec.LookPath("mmdebstrap")
	if err != nil {
		return sandbox.Wrap(sandbox.Unavailable, err, "building images needs mmdebstrap; install the Debian package mmdebstrap")
	}
	packages, err := fetchNPM(ctx, job)
	if err != nil {
		return err
	}
	overlay := filepath.Join(job.Dir, "overlay.tar")
	if err := writeOverlay(overlay, job.Recipe, packages); err != nil {
		return fmt.Errorf("stage recipe %s: %w", job.Recipe.Ref(), err)
	}
	return d.run(ctx, program, overlay, job, w)
}

// run runs mmdebstrap with its tar going to w and its messages to job.Progress.
func (d Debian) run(ctx context.Context, program, overlay string, job Job, w io.Writer) error {
	// The thread must live as long as the child: the kernel sends Pdeathsig when
	// the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	args := append([]string{"-c", forward, "forward", program}, d.args(job.Recipe, overlay)...)
	cmd := exec.CommandContext(ctx, "/bin/sh", args...)
	cmd.Dir = job.Dir
	cmd.Env = append(toolEnv(os.Environ()), "SOURCE_DATE_EPOCH="+strconv.FormatInt(job.Recipe.date.Unix(), 10), "LC_ALL=C.UTF-8")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if os.Geteuid() == 0 {
		// An ordinary user's directory cannot be used: the user namespace must be able to reach it.
		cmd.Env = append(cmd.Env, "TMPDIR="+job.Dir)
		// As root mmdebstrap binds /sys into the new root, with all mounts below it, and unmounts that
		// later. If mounts are shared, as systemd makes them, this would also unmount the host's control
		// groups. Package syscall makes all mounts of a namespace that it unshares private.
		cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopGrace
	cmd.Stdout = w

	messages, writer := io.Pipe()
	cmd.Stderr = writer
	tail := make(chan string, 1)
	go func() { tail <- watchMmdebstrap(messages, job.Progress) }()
	err := cmd.Run()
	_ = writer.Close()
	last := <-tail
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // fails when the whole group has ended, as it should
	}
	if ctx.Err() != nil {
		return fmt.Errorf("make root filesystem %s: %w", job.Recipe.Ref(), context.Cause(ctx))
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return sandbox.Wrap(sandbox.Unavailable, err, "mmdebstrap could not make %s: %s", job.Recipe.Ref(), last)
	}
	if err != nil {
		return fmt.Errorf("run mmdebstrap for %s: %w", job.Recipe.Ref(), err)
	}
	return nil
}

// checkAptConfig stops mmdebstrap when its apt configuration, which it keeps in
// the new /tmp, is gone: it would go on to clear the apt lists of the host.
const checkAptConfig = `--customize-hook=test -e "$MMDEBSTRAP_APT_CONFIG" || { echo "a setup script must not empty /tmp" >&2; exit 1; }`

// args returns mmdebstrap's arguments. Mode unshare is right also for root: it then skips only the
// user namespace, and its mounts disappear with it.
func (d Debian) args(r *Recipe, overlay string) []string {
	args := []string{
		"--mode=unshare", "--format=tar", "--variant=minbase", "--verbose",
		"--architectures=" + runtime.GOARCH,
		`--aptopt=Acquire::Retries "3"`,
		// Whether apt can drop to its own user depends on the host and its user; the ownership of two
		// directories would differ. In a sandbox it gains nothing.
		`--aptopt=APT::Sandbox::User "root"`,
		"--include=" + strings.Join(r.spec.Debian.Packages, ","),
	}
	for _, o := range leftOut {
		args = append(args, "--dpkgopt="+o)
	}
	for _, p := range r.spec.Debian.ExcludeFiles {
		args = append(args, "--dpkgopt=path-exclude="+p)
	}
	args = append(args, "--customize-hook=tar-in "+filepath.Base(overlay)+" /")
	script := func(name string) string {
		return fmt.Sprintf(`--customize-hook=chroot "$1" env BUILD=%s sh -eu '%s/%s'`, stagingDir, stagingDir, name)
	}
	if len(r.pip()) > 0 {
		args = append(args, script(pipScriptName))
	}
	for i, l := range r.layers {
		if l.setup != "" {
			args = append(args, script(setupName(i)))
		}
	}
	args = append(args, script(finishName), `--customize-hook=rm -rf "$1`+stagingDir+`"`, checkAptConfig, r.spec.Debian.Suite, "-")
	if d.Mirror != "" {
		args = append(args, d.Mirror)
	}
	return args
}

var (
	newlyInstalled = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(\d+) newly installed`) })
	gotPackage     = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^Get:\d+ .* (\S+) (?:amd64|arm64|all) (\S+) \[`) })
	settingUp      = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^Setting up (\S+)`) })
)

// errorLines is the number of lines of mmdebstrap's output in an error message.
const errorLines = 6

// watchMmdebstrap turns mmdebstrap's messages into progress until r ends, and returns the last
// informative lines.
func watchMmdebstrap(r io.Reader, progress func(phase.Event)) string {
	var last []string
	var total, downloaded, installed int64
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "I: ") && strings.Contains(line, "tempdir") {
			continue
		}
		last = append(last, line)
		last = last[max(0, len(last)-errorLines):]
		if m := newlyInstalled().FindStringSubmatch(line); m != nil {
			n, _ := strconv.ParseInt(m[1], 10, 64) // digits only; an overflow does no harm
			total += n
		} else if m := gotPackage().FindStringSubmatch(line); m != nil {
			downloaded++
			progress(phase.Event{Phase: phase.Downloading, Done: downloaded, Total: total, Message: m[1] + " " + m[2]})
		} else if m := settingUp().FindStringSubmatch(line); m != nil {
			installed++
			progress(phase.Event{Phase: phase.Installing, Done: installed, Total: max(total, installed), Message: m[1]})
		} else if strings.HasPrefix(line, "I: running --customize-hook") {
			progress(phase.Event{Phase: phase.Setup, Message: "running the recipe's script"})
		} else if strings.HasPrefix(line, "I: creating tarball") {
			progress(phase.Event{Phase: phase.Writing, Message: "packing files"})
		}
	}
	_, _ = io.Copy(io.Discard, r) // after an overlong line; the writer must not block
	return strings.Join(last, "; ")
}
