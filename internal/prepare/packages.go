package prepare

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/fairsem"
	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/spool"
	"github.com/modbox/modbox/internal/workbox"
)

// Packages are installed in an image before a sandbox is made from it.
type Packages struct {
	APT []string // Debian packages, as "name", "name=version" or "name=version*"
	NPM []string // npm packages, installed globally
	PIP []string // Python packages, as "name", "name==version" or "name[extra]"
}

// PackagesOf returns the packages of a sandbox.
func PackagesOf(sb *sandbox.Sandbox) Packages {
	return Packages{APT: sb.AptPackages, NPM: sb.NpmPackages, PIP: sb.PipPackages}
}

// Empty reports whether there is nothing to install.
func (d Packages) Empty() bool { return len(d.APT)+len(d.NPM)+len(d.PIP) == 0 }

var (
	// aptName follows Debian's policy. apt would take a name that ends with - for
	// one to remove.
	aptName    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]*[a-z0-9+.]$`) })
	aptVersion = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.+~:-]*\*?$`) })
	// npmPackage is a name with or without a scope, and perhaps a version, tag or
	// range of a few characters that mean nothing to any shell.
	npmPackage = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(@[a-z0-9][a-z0-9._~-]*/)?[A-Za-z0-9][A-Za-z0-9._~-]*(@[A-Za-z0-9^~<>=*][A-Za-z0-9._+~^<>=*-]*)?$`)
	})
)

// Check checks the form of the packages. Errors: Invalid, naming the package.
func Check(d Packages) error {
	for _, list := range []struct {
		field string
		names []string
		check func(string) string
	}{{"apt_packages", d.APT, checkApt}, {"npm_packages", d.NPM, checkNPM}, {"pip_packages", d.PIP, checkPIP}} {
		if len(list.names) > sandbox.PackagesMax {
			return sandbox.InvalidField(list.field, "must be at most %d", sandbox.PackagesMax)
		}
		for i, name := range list.names {
			if why := list.check(name); why != "" {
				return sandbox.InvalidField(fmt.Sprintf("%s[%d]", list.field, i), "%q %s", sandbox.Excerpt(name), why)
			}
		}
	}
	return nil
}

// checkApt describes the mistake in the name of a Debian package; "" for nothing.
func checkApt(s string) string {
	name, version, pinned := strings.Cut(s, "=")
	switch {
	case len(s) > sandbox.PackageNameMax:
		return fmt.Sprintf("has more than %d characters", sandbox.PackageNameMax)
	case !aptName().MatchString(name):
		return "is not the name of a Debian package"
	case pinned && !aptVersion().MatchString(version):
		return "does not name a version as in curl=8.14.1-2 or curl=8.14*"
	}
	return ""
}

// checkNPM describes the mistake in the name of an npm package; "" for nothing.
func checkNPM(s string) string {
	switch {
	case len(s) > sandbox.PackageNameMax:
		return fmt.Sprintf("has more than %d characters", sandbox.PackageNameMax)
	case !npmPackage().MatchString(s):
		return "is not an npm package as in typescript, typescript@5 or @scope/name@1.2.3"
	}
	return ""
}

// key identifies the result of installing d in an image.
func (s *Service) key(digest string, d Packages) string {
	sorted := func(list []string) []string { return slices.Compact(slices.Sorted(slices.Values(list))) }
	data, err := json.Marshal([]any{"packages 2", digest, sorted(d.APT), sorted(d.NPM), sorted(d.PIP), s.cfg.PipIndexURL, s.cfg.NetworkCA})
	if err != nil {
		panic(err) // strings only: cannot fail
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Install returns the image base with d installed, made before or now, and the path of its root
// filesystem. The image counts for the workspace as left by its builds. Progress is as for
// [Service.Pull].
//
// Errors: Invalid, naming the field, with the last lines of the tool that failed; QuotaExceeded;
// Unsupported if this server cannot install packages; the errors of committing a layer.
func (s *Service) Install(ctx context.Context, ws sandbox.WorkspaceID, base *spec.Image, d Packages, reserved Reserved, progress func(phase.Event)) (spec.Image, string, error) {
	if err := s.Offered(); err != nil {
		return spec.Image{}, "", err
	}
	key := s.key(base.Digest, d)
	if img, rootfs, err := s.layers.Cached(ctx, ws, key, s.maxAge()); sandbox.CodeOf(err) != sandbox.NotFound {
		return img, rootfs, err
	}
	// A turn may be long in coming, and the name may mean another image by then.
	release, err := s.layers.Hold(ctx, base.Digest)
	if err != nil {
		return spec.Image{}, "", err
	}
	defer release()
	// Each workspace waits for its own turn: joining another's, it would stand behind
	// all that the other one has asked for. Those who share one count for the same, so
	// that it does not matter which of them is still there at its end.
	task := fmt.Sprintf("packages %s %s %v %p", ws, key, reserved.Own, reserved.Build)
	work := func(ctx context.Context, progress func(phase.Event)) (spec.Image, error) {
		if img, _, err := s.layers.Cached(ctx, ws, key, s.maxAge()); sandbox.CodeOf(err) != sandbox.NotFound {
			return img, err // another workspace was faster
		}
		if err := s.quotas.CheckDisk(ctx, ws); err != nil {
			return spec.Image{}, err
		}
		got := reserved.Build
		if got == nil {
			mine, err := s.quotas.ReserveInstall(ctx, ws, reserved.Own)
			if err != nil {
				return spec.Image{}, err
			}
			defer mine.Release()
			got = &mine
		}
		done, err := s.derive(ctx, ws, key, base.Digest, got, func(ctx context.Context, w *workbox.Box) error {
			return s.install(ctx, w, d, progress)
		})
		return spec.Image{Digest: done.Digest}, err
	}
	img, err := s.retryForDisk(ctx, progress, func() (spec.Image, error) {
		return s.share(ctx, s.installs, ws, task, progress, work)
	})
	if err != nil {
		return spec.Image{}, "", err
	}
	return s.images.Resolve(ctx, img.Digest)
}

// Reserved is the part of the quota that the request of an install holds already.
type Reserved struct {
	// Own are the resources of the waiting sandbox, which counts and does not use them yet.
	Own sandbox.Resources
	// Build is the reservation of the waiting build; nil for none.
	Build *quota.Reservation
}

// retryForDisk repeats an install for an hour at most while other builds reserve the disk that it
// needs. It holds no place and nothing of the quota while it waits. Errors: the errors of install;
// the context's.
func (s *Service) retryForDisk(ctx context.Context, progress func(phase.Event), install func() (spec.Image, error)) (spec.Image, error) {
	over := time.NewTimer(fairsem.MaxWait)
	defer over.Stop()
	poll := time.NewTicker(installPoll)
	defer poll.Stop()
	for {
		changed := s.quotas.Changed()
		img, err := install()
		if !errors.Is(err, quota.ErrDiskReserved) {
			return img, err
		}
		progress(phase.Event{Phase: "waiting", Message: "other builds of the workspace use its disk"})
		select {
		case <-changed:
		case <-poll.C:
		case <-over.C:
			return img, err
		case <-ctx.Done():
			return img, ctx.Err()
		}
	}
}

// maxAge is as [Layers.Cached] wants it.
func (s *Service) maxAge() time.Duration { return max(s.cfg.MaxAge, 0) }

// Offered returns an error when this server cannot install packages.
func (s *Service) Offered() error {
	if _, err := s.boxes.Snapshotter(); err != nil || !s.isolated {
		return sandbox.Errorf(sandbox.Unsupported, "this server cannot install packages: it cannot keep the files of a box")
	}
	if s.boxes.NetworkOffered() != nil {
		return sandbox.Errorf(sandbox.Unsupported, "this server cannot install packages: its boxes have no network")
	}
	return nil
}

// installPoll is how often an install looks for disk that was freed without a wakeup.
const installPoll = 10 * time.Second

// quiet has tools neither ask nor draw; what they download goes where no image keeps it.
var quiet = map[string]string{
	"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8", "NPM_CONFIG_CACHE": "/tmp/npm-cache", "BUN_INSTALL_CACHE_DIR": "/tmp/bun-cache",
	"NPM_CONFIG_UPDATE_NOTIFIER": "false", "NO_COLOR": "1", "CI": "1",
}

// install installs packages in the box and cleans up behind the tools. Debian packages are first:
// they may be the tools for the others.
func (s *Service) install(ctx context.Context, w *workbox.Box, d Packages, progress func(phase.Event)) error {
	var current phase.Phase
	tell := func(e phase.Event) {
		current = e.Phase
		progress(e)
	}
	w.Say = func(line string) { progress(phase.Event{Phase: current, Message: line}) }
	if len(d.APT) > 0 {
		if err := installAPT(ctx, w, d.APT, tell); err != nil {
			return err
		}
	}
	if len(d.NPM) > 0 {
		if err := installNPM(ctx, w, d.NPM, tell); err != nil {
			return err
		}
	}
	if len(d.PIP) > 0 {
		return installPIP(ctx, w, d.PIP, s.cfg.PipIndexURL, tell)
	}
	return nil
}

// apt returns a call of apt-get. Retries are for mirrors that hiccup.
func apt(args ...string) agentapi.Command {
	return agentapi.Command{
		Argv: append([]string{"apt-get", "-q", "-y", "-o", "Acquire::Retries=3", "-o", "Dpkg::Use-Pty=0"}, args...),
		User: "0:0", Cwd: "/", Env: quiet,
	}
}

// updateAPT downloads the package lists of the mirrors.
func updateAPT(ctx context.Context, w *workbox.Box) error {
	err := w.Tool(ctx, "apt_packages", sandbox.Unavailable, apt("update", "-o", "APT::Update::Error-Mode=any"))
	if sandbox.CodeOf(err) == sandbox.ProgramNotFound {
		return sandbox.InvalidField("apt_packages", "the image %s has no apt-get", w.Base().Ref())
	}
	return err
}

func installAPT(ctx context.Context, w *workbox.Box, names []string, progress func(phase.Event)) error {
	progress(phase.Event{Phase: "downloading", Message: "lists of Debian packages"})
	if err := updateAPT(ctx, w); err != nil {
		return err
	}
	progress(phase.Event{Phase: "installing", Message: "Debian packages: " + strings.Join(names, " ")})
	// The scripts of some packages, such as a JDK, make links to pages of the manual, whose directories slim images do not have.
	manual := agentapi.Command{Argv: []string{"mkdir", "-p"}, User: "0:0", Cwd: "/", Env: quiet}
	for section := range 9 {
		manual.Argv = append(manual.Argv, "/usr/share/man/man"+strconv.Itoa(section+1))
	}
	if err := w.Tool(ctx, "apt_packages", sandbox.Unavailable, manual); err != nil {
		return err
	}
	if err := w.Tool(ctx, "apt_packages", sandbox.Invalid, apt(append([]string{"install", "--no-install-recommends", "--"}, names...)...)); err != nil {
		return err
	}
	// Downloads are not needed any more, and the lists are old tomorrow.
	clean := agentapi.Command{
		Argv: []string{"find", "/var/lib/apt/lists", "/var/cache/apt", "/var/log/apt", "-mindepth", "1", "-delete"},
		User: "0:0", Cwd: "/", Env: quiet,
	}
	return w.Tool(ctx, "apt_packages", sandbox.Unavailable, clean)
}

// installNPM installs npm packages as the image's user, with npm or, in an image
// without it, with bun.
func installNPM(ctx context.Context, w *workbox.Box, names []string, progress func(phase.Event)) error {
	progress(phase.Event{Phase: "installing", Message: "npm packages: " + strings.Join(names, " ")})
	err := w.Tool(ctx, "npm_packages", sandbox.Invalid, agentapi.Command{
		Argv: append([]string{"npm", "install", "--global", "--no-fund", "--no-audit", "--"}, names...), Env: quiet,
	})
	if sandbox.CodeOf(err) != sandbox.ProgramNotFound {
		return err
	}
	err = w.Tool(ctx, "npm_packages", sandbox.Invalid, agentapi.Command{Argv: append([]string{"bun", "install", "--global"}, names...), Env: quiet})
	if sandbox.CodeOf(err) == sandbox.ProgramNotFound {
		return sandbox.InvalidField("npm_packages", "the image %s has neither npm nor bun", w.Base().Ref())
	}
	return err
}

// derive runs work in a box made from base, with what got reserves, and stores base with the
// files that it leaves under key. The result counts for the workspace. The caller has a place of
// s.installs.
//
// Errors: work's; NotFound for the base; Unsupported; QuotaExceeded; the errors of [Layers.CommitCached].
func (s *Service) derive(ctx context.Context, ws sandbox.WorkspaceID, key, base string, got *quota.Reservation, work func(context.Context, *workbox.Box) error) (Layered, error) {
	file, err := spool.Open(s.cfg.SpoolDir)
	if err != nil {
		return Layered{}, err
	}
	defer func() { _ = file.Close() }()
	spec := workbox.Spec{Base: base, Network: true, Resources: got.Have}
	if err := s.boxes.WriteLayer(ctx, spec, file, work); err != nil {
		return Layered{}, err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return Layered{}, err
	}
	check := func(ctx context.Context, add int64) error { return s.quotas.CheckDiskFor(ctx, ws, got.Disk, add) }
	return s.layers.CommitCached(ctx, CacheEntry{Key: key, Workspace: ws, CheckSpace: check}, base, file)
}

// Installed returns the digest of the image with a digest that has d installed, and "" if it has
// to be made first.
func (s *Service) Installed(ctx context.Context, digest string, d Packages) string {
	img, _, err := s.layers.Cached(ctx, "", s.key(digest, d), s.maxAge())
	if err != nil {
		return "" // making it reports the error
	}
	return img.Digest
}
