package prepare

import (
	"cmp"
	"context"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/workbox"
)

// PackageCheck says whether a Debian package can be installed.
type PackageCheck struct {
	// Name is the package as the caller wrote it.
	Name string
	// Reason says why it cannot be installed; "" when it can.
	Reason string
	// Versions are those there are, when it is only the version that is wrong.
	Versions []string
}

const (
	// checkImage is where packages are looked up when a caller names no image.
	checkImage = "modbox/base:latest"
	// checkLifetime is how long an answer is good.
	checkLifetime = 10 * time.Minute
	// checksMax bounds the cached answers.
	checksMax = 4096
	// versionsMax bounds the versions of a package, catalogueMax the bytes of an
	// answer of apt-cache.
	versionsMax  = 20
	catalogueMax = 1 << 20
)

// packageChecks are answers of a while ago, by image and package.
type packageChecks struct {
	mu      sync.Mutex
	answers map[[2]string]packageAnswer // guarded by mu
}

type packageAnswer struct {
	check PackageCheck
	at    time.Time
}

// ValidateAptPackages says of each Debian package whether it can be installed in
// an image, "" for modbox/base, in the same order. Looking them up may take some
// seconds; answers are cached for ten minutes.
//
// Errors: Invalid, naming the field; QuotaExceeded; Unsupported when this server cannot
// install packages; Unavailable when the mirror cannot be reached.
func (s *Service) ValidateAptPackages(ctx context.Context, c sandbox.Caller, image string, names []string) ([]PackageCheck, error) {
	if !s.work.Running() {
		return nil, box.ErrClosed
	}
	if len(names) > sandbox.PackagesMax {
		return nil, sandbox.InvalidField("apt_packages", "must be at most %d", sandbox.PackagesMax)
	}
	if err := s.Offered(); err != nil {
		return nil, err
	}
	img, _, err := s.Ensure(ctx, cmp.Or(image, checkImage), Puller(c.Workspace), nil)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return nil, sandbox.InvalidField("image", "%s", sandbox.Explain("unknown image", err))
	}
	if err != nil {
		return nil, err
	}
	checks := make([]PackageCheck, len(names))
	var ask []string
	for i, name := range names {
		checks[i] = PackageCheck{Name: name, Reason: checkApt(name)}
		if checks[i].Reason == "" && !s.checks.recall(img.Digest, &checks[i]) {
			ask = append(ask, name)
		}
	}
	if len(ask) == 0 {
		return checks, nil
	}
	versions, err := s.lookUp(ctx, c.Workspace, &img, ask)
	if err != nil {
		return nil, err
	}
	for i := range checks {
		if slices.Contains(ask, checks[i].Name) {
			checks[i] = checkVersions(checks[i].Name, versions)
			s.checks.keep(img.Digest, checks[i])
		}
	}
	return checks, nil
}

// checkVersions says whether a package is among those there are.
func checkVersions(s string, versions map[string][]string) PackageCheck {
	name, want, pinned := strings.Cut(s, "=")
	there := versions[name]
	switch {
	case len(there) == 0:
		return PackageCheck{Name: s, Reason: "there is no such Debian package"}
	case !pinned || slices.ContainsFunc(there, func(v string) bool {
		ok, err := path.Match(want, v)
		return ok && err == nil
	}):
		return PackageCheck{Name: s}
	}
	return PackageCheck{Name: s, Reason: "there is no such version", Versions: there[:min(len(there), versionsMax)]}
}

// withApt has work use a box of an image with fresh lists of Debian packages, when it
// is the workspace's turn; "" is the server's own, which counts for nobody. Its time
// begins then.
func (s *Service) withApt(ctx context.Context, ws sandbox.WorkspaceID, img *spec.Image, work func(context.Context, *workbox.Box) error) error {
	release, err := s.layers.Hold(ctx, img.Digest) // a turn may be long in coming
	if err != nil {
		return err
	}
	defer release()
	leave, err := s.installs.Acquire(ctx, ws, nil)
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ImageTimeout)
	defer cancel()
	var got quota.Reservation
	if ws != "" {
		if got, err = s.quotas.ReserveInstall(ctx, ws, sandbox.Resources{}); err != nil {
			return err
		}
		defer got.Release()
	}
	w, err := s.boxes.Open(ctx, workbox.Spec{Base: img.Digest, Network: true, Resources: got.Have})
	if err != nil {
		return err
	}
	defer w.Close()
	if err := updateAPT(ctx, w); err != nil {
		return err
	}
	return work(ctx, w)
}

// lookUp returns the versions of the packages that an image's mirrors have.
func (s *Service) lookUp(ctx context.Context, ws sandbox.WorkspaceID, img *spec.Image, packages []string) (map[string][]string, error) {
	argv := []string{"apt-cache", "madison", "--"}
	for _, p := range packages {
		name, _, _ := strings.Cut(p, "=")
		argv = append(argv, name)
	}
	var out []byte
	err := s.withApt(ctx, ws, img, func(ctx context.Context, w *workbox.Box) error {
		// It says on stderr, and by its exit code, what it does not find.
		_, err := w.Run(ctx, agentapi.Command{Argv: argv, User: "0:0", Cwd: "/", Env: quiet}, func(p []byte) {
			out = append(out, p[:min(len(p), catalogueMax-len(out))]...)
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	versions := map[string][]string{}
	for line := range strings.Lines(strings.ToValidUTF8(string(out), "?")) {
		f := strings.Split(line, "|")
		if len(f) != 3 {
			continue
		}
		name, version := strings.TrimSpace(f[0]), strings.TrimSpace(f[1])
		if !slices.Contains(versions[name], version) && len(version) <= sandbox.PackageNameMax {
			versions[name] = append(versions[name], version)
		}
	}
	return versions, nil
}

// recall completes a check from an answer of a while ago, and reports whether there is one.
func (c *packageChecks) recall(digest string, check *PackageCheck) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, ok := c.answers[[2]string{digest, check.Name}]
	if !ok || time.Since(a.at) > checkLifetime {
		return false
	}
	*check = a.check
	return true
}

func (c *packageChecks) keep(digest string, check PackageCheck) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.answers) >= checksMax {
		clear(c.answers)
	}
	c.answers[[2]string{digest, check.Name}] = packageAnswer{check, time.Now()}
}
