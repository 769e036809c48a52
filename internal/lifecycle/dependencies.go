package lifecycle

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/fairsem"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
)

// dependencies is what is installed in an image before a sandbox is made from it.
type dependencies struct {
	apt []string // Debian packages, as "name", "name=version" or "name=version*"
	npm []string // npm packages, installed globally
}

func dependenciesOf(sb *sandbox.Sandbox) dependencies {
	return dependencies{apt: sb.Dependencies, npm: sb.Packages}
}

func (d dependencies) empty() bool { return len(d.apt) == 0 && len(d.npm) == 0 }

var (
	// aptName follows Debian's policy. apt would take a name that ends with - for
	// one to remove.
	aptName    = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]*[a-z0-9+.]$`)
	aptVersion = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.+~:-]*\*?$`)
	// npmPackage is a name with or without a scope, and perhaps a version, tag or
	// range of a few characters that mean nothing to any shell.
	npmPackage = regexp.MustCompile(`^(@[a-z0-9][a-z0-9._~-]*/)?[A-Za-z0-9][A-Za-z0-9._~-]*(@[A-Za-z0-9^~<>=*][A-Za-z0-9._+~^<>=*-]*)?$`)
)

// checkDependencies checks what a caller wants installed.
func checkDependencies(apt, npm []string) error {
	for _, list := range []struct {
		field string
		names []string
		check func(string) string
	}{{"dependencies", apt, checkApt}, {"packages", npm, checkNPM}} {
		if len(list.names) > sandbox.DependenciesMax {
			return sandbox.InvalidField(list.field, "must be at most %d", sandbox.DependenciesMax)
		}
		for i, name := range list.names {
			if why := list.check(name); why != "" {
				return sandbox.InvalidField(fmt.Sprintf("%s[%d]", list.field, i), "%q %s", sandbox.Excerpt(name), why)
			}
		}
	}
	return nil
}

// checkApt says what is wrong with a Debian package; "" for nothing.
func checkApt(s string) string {
	name, version, pinned := strings.Cut(s, "=")
	switch {
	case len(s) > sandbox.DependencyMax:
		return fmt.Sprintf("has more than %d characters", sandbox.DependencyMax)
	case !aptName.MatchString(name):
		return "is not the name of a Debian package"
	case pinned && !aptVersion.MatchString(version):
		return "does not name a version as in curl=8.14.1-2 or curl=8.14*"
	}
	return ""
}

// checkNPM says what is wrong with an npm package; "" for nothing.
func checkNPM(s string) string {
	switch {
	case len(s) > sandbox.DependencyMax:
		return fmt.Sprintf("has more than %d characters", sandbox.DependencyMax)
	case !npmPackage.MatchString(s):
		return "is not an npm package as in typescript, typescript@5 or @scope/name@1.2.3"
	}
	return ""
}

// dependenciesKey identifies what comes out when d is installed in an image.
func (s *Service) dependenciesKey(digest string, d dependencies) string {
	sorted := func(list []string) []string { return slices.Compact(slices.Sorted(slices.Values(list))) }
	data, err := json.Marshal([]any{"dependencies 1", digest, sorted(d.apt), sorted(d.npm), s.cfg.NetworkCA})
	if err != nil {
		panic(err) // strings only: cannot fail
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// withDependencies returns the image that has d installed, from before or made
// now, and the path of its root filesystem. Room is what the box has. The image counts for the workspace as left by its builds. Progress is as in [Service.make].
//
// Errors: Invalid, naming the field, with the last words of a tool that would not
// install them; QuotaExceeded; Unsupported when this server lacks a power for it; as [Service.derive].
func (s *Service) withDependencies(ctx context.Context, ws sandbox.WorkspaceID, base *sandbox.Image, d dependencies, room installRoom, progress func(sandbox.ImageEvent)) (sandbox.Image, string, error) {
	if err := s.dependenciesOffered(); err != nil {
		return sandbox.Image{}, "", err
	}
	key := s.dependenciesKey(base.Digest, d)
	if img, rootfs, err := s.layers.Cached(ctx, ws, key, s.dependenciesMaxAge()); sandbox.CodeOf(err) != sandbox.NotFound {
		return img, rootfs, err
	}
	// A turn may be long in coming, and the name may mean another image by then.
	release, err := s.layers.Hold(ctx, base.Digest)
	if err != nil {
		return sandbox.Image{}, "", err
	}
	defer release()
	// Each workspace waits for its own turn: joining another's, it would stand behind
	// all that the other one has asked for. Those who share one count for the same, so
	// that it does not matter which of them is still there at its end.
	making := fmt.Sprintf("dependencies %s %s %v %p", ws, key, room.own, room.reserved)
	install := func(ctx context.Context, progress func(sandbox.ImageEvent)) (sandbox.Image, error) {
		if img, _, err := s.layers.Cached(ctx, ws, key, s.dependenciesMaxAge()); sandbox.CodeOf(err) != sandbox.NotFound {
			return img, err // another workspace was faster
		}
		if err := s.quotas.CheckDisk(ctx, ws); err != nil {
			return sandbox.Image{}, err
		}
		got := room.reserved
		if got == nil {
			mine, err := s.quotas.ReserveInstall(ctx, ws, room.own)
			if err != nil {
				return sandbox.Image{}, err
			}
			defer mine.Release()
			got = &mine
		}
		spec := workSpec{base: base.Digest, network: true, resources: got.Have, reserved: got.Disk}
		done, err := s.derive(ctx, ws, key, spec, func(ctx context.Context, w *workbox) error {
			return w.install(ctx, d, progress)
		})
		return sandbox.Image{Digest: done.Digest}, err
	}
	img, err := s.makeWithDisk(ctx, progress, func() (sandbox.Image, error) {
		return s.make(ctx, s.builds, ws, making, progress, install)
	})
	if err != nil {
		return sandbox.Image{}, "", err
	}
	return s.images.Resolve(ctx, img.Digest)
}

// installRoom says for what the box of an install counts already.
type installRoom struct {
	// own is what the sandbox that waits for it counts for and does not use meanwhile.
	own sandbox.Resources
	// reserved, when not nil, is what the build has reserved that waits for it.
	reserved *quota.Reservation
}

// makeWithDisk has an install made, again for as long as builds under way hold the disk
// that it needs: each of them ends. It holds no place and nothing of the quota while it
// waits, for an hour at most. Errors: those of install; the context's.
func (s *Service) makeWithDisk(ctx context.Context, progress func(sandbox.ImageEvent), install func() (sandbox.Image, error)) (sandbox.Image, error) {
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
		progress(sandbox.ImageEvent{Phase: "waiting", Message: "other builds of the workspace use its disk"})
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

// dependenciesMaxAge is as [Layers.Cached] wants it.
func (s *Service) dependenciesMaxAge() time.Duration { return max(s.cfg.DependenciesMaxAge, 0) }

// dependenciesOffered returns an error when this server cannot install dependencies.
func (s *Service) dependenciesOffered() error {
	// A driver for tests would install them on the machine of whoever runs the tests.
	if _, err := s.snapshotter(); err != nil || !s.driver.Capabilities().Isolated {
		return sandbox.Errorf(sandbox.Unsupported, "this server cannot install dependencies: it cannot keep the files of a box")
	}
	if s.networkOffered() != nil {
		return sandbox.Errorf(sandbox.Unsupported, "this server cannot install dependencies: its boxes have no network")
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

// install installs dependencies in the box and cleans up behind the tools.
func (w *workbox) install(ctx context.Context, d dependencies, progress func(sandbox.ImageEvent)) error {
	var phase sandbox.ImagePhase
	tell := func(e sandbox.ImageEvent) {
		phase = e.Phase
		progress(e)
	}
	w.say = func(line string) { progress(sandbox.ImageEvent{Phase: phase, Message: line}) }
	if len(d.apt) > 0 {
		if err := w.installApt(ctx, d.apt, tell); err != nil {
			return err
		}
	}
	if len(d.npm) > 0 {
		return w.installNPM(ctx, d.npm, tell)
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

// updateApt has the box know what the mirrors have.
func (w *workbox) updateApt(ctx context.Context) error {
	err := w.tool(ctx, "dependencies", sandbox.Unavailable, apt("update", "-o", "APT::Update::Error-Mode=any"))
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return sandbox.InvalidField("dependencies", "the image %s has no apt-get", w.base.Ref())
	}
	return err
}

func (w *workbox) installApt(ctx context.Context, names []string, progress func(sandbox.ImageEvent)) error {
	progress(sandbox.ImageEvent{Phase: "downloading", Message: "lists of Debian packages"})
	if err := w.updateApt(ctx); err != nil {
		return err
	}
	progress(sandbox.ImageEvent{Phase: "installing", Message: "Debian packages: " + strings.Join(names, " ")})
	if err := w.tool(ctx, "dependencies", sandbox.Invalid, apt(append([]string{"install", "--no-install-recommends", "--"}, names...)...)); err != nil {
		return err
	}
	// What was downloaded is not needed any more, and the lists are old tomorrow.
	clean := agentapi.Command{
		Argv: []string{"find", "/var/lib/apt/lists", "/var/cache/apt", "/var/log/apt", "-mindepth", "1", "-delete"},
		User: "0:0", Cwd: "/", Env: quiet,
	}
	return w.tool(ctx, "dependencies", sandbox.Unavailable, clean)
}

// installNPM installs npm packages as the image's user, with npm or, in an image
// without it, with bun.
func (w *workbox) installNPM(ctx context.Context, names []string, progress func(sandbox.ImageEvent)) error {
	progress(sandbox.ImageEvent{Phase: "installing", Message: "npm packages: " + strings.Join(names, " ")})
	err := w.tool(ctx, "packages", sandbox.Invalid, agentapi.Command{
		Argv: append([]string{"npm", "install", "--global", "--no-fund", "--no-audit", "--"}, names...), Env: quiet,
	})
	if sandbox.CodeOf(err) != sandbox.NotFound {
		return err
	}
	err = w.tool(ctx, "packages", sandbox.Invalid, agentapi.Command{Argv: append([]string{"bun", "install", "--global"}, names...), Env: quiet})
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return sandbox.InvalidField("packages", "the image %s has neither npm nor bun", w.base.Ref())
	}
	return err
}

// tool runs a command whose failure is an error with a code that names the field
// and ends with the tool's last words. Errors: NotFound when there is no such program.
func (w *workbox) tool(ctx context.Context, field string, code sandbox.Code, cmd agentapi.Command) error {
	var last tail
	output := last.add
	if w.say != nil {
		lines := liner{say: w.say}
		output = func(p []byte) { last.add(p); lines.add(p) }
	}
	exit, err := w.run(ctx, cmd, output)
	switch {
	case err != nil:
		return err
	case exit.Code == 0:
		return nil
	}
	return &sandbox.Error{Code: code, Field: field, Message: sandbox.OneLine(fmt.Sprintf("%s ended with code %d: %s", cmd.Argv[0], exit.Code, last.String()))}
}
