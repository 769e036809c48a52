package prepare

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/workbox"
)

const (
	// packageListLifetime is how long the list of packages is good, packageListRetry
	// how long it is not asked for again after that failed, packageListWait how long a
	// caller waits for it.
	packageListLifetime = 6 * time.Hour
	packageListRetry    = 5 * time.Minute
	packageListWait     = 20 * time.Second
	// packageListMax bounds its bytes, which a mirror may have written.
	packageListMax = 32 << 20
)

// packageList are all Debian packages that can be installed in [checkImage]. It is
// for callers who are not known: whatever they ask, it is read by one work box
// once in a while.
type packageList struct {
	mu       sync.Mutex
	versions map[string][]string // guarded by mu; nil when there is none
	until    time.Time           // guarded by mu; when it is read again
	reading  chan struct{}       // guarded by mu; closed when it was read; nil when nobody does
}

// CheckAptPackages is [Service.ValidateAptPackages] for any caller, without an
// image: packages are looked up in a list of those for modbox/base, which is some
// hours old at most. While there is none, because this server cannot install
// packages, or its mirrors do not answer in time, only the form is checked.
// Errors: Invalid, naming apt_packages.
func (s *Service) CheckAptPackages(ctx context.Context, names []string) ([]PackageCheck, error) {
	if len(names) > sandbox.PackagesMax {
		return nil, sandbox.InvalidField("apt_packages", "must be at most %d", sandbox.PackagesMax)
	}
	checks := make([]PackageCheck, len(names))
	look := false
	for i, name := range names {
		checks[i] = PackageCheck{Name: name, Reason: checkApt(name)}
		look = look || checks[i].Reason == ""
	}
	if !look || !s.work.Running() || s.Offered() != nil {
		return checks, nil
	}
	versions := s.debianPackages(ctx)
	if versions == nil {
		return checks, nil
	}
	for i, c := range checks {
		if c.Reason == "" {
			checks[i] = checkVersions(c.Name, versions)
		}
	}
	return checks, nil
}

// debianPackages returns the versions of all packages, nil when they are not known
// in time.
func (s *Service) debianPackages(ctx context.Context) map[string][]string {
	l := &s.packages
	l.mu.Lock()
	if l.reading == nil && time.Now().After(l.until) {
		done := make(chan struct{})
		if s.work.Go(func() {
			defer close(done)
			s.readPackages()
		}) {
			l.reading = done
		}
	}
	reading, versions := l.reading, l.versions
	l.mu.Unlock()
	if versions != nil || reading == nil { // an old list is good while the new one is read
		return versions
	}
	select {
	case <-reading:
	case <-ctx.Done():
	case <-time.After(packageListWait):
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.versions
}

// readPackages reads the list anew.
func (s *Service) readPackages() {
	versions, err := s.listPackages(s.ctx)
	if err != nil && s.ctx.Err() == nil {
		s.log.Warn("the list of Debian packages cannot be read", "error", err)
	}
	l := &s.packages
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reading, l.until = nil, time.Now().Add(packageListRetry)
	if err == nil {
		l.versions, l.until = versions, time.Now().Add(packageListLifetime)
	}
}

// listPackages has a work box read what its mirrors have.
func (s *Service) listPackages(ctx context.Context) (map[string][]string, error) {
	img, _, err := s.Ensure(ctx, checkImage, registry.Puller{}, nil)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	var exit agentapi.Exit
	script := `PATH=$PATH:/usr/lib/apt:/usr/bin:/bin; apt-helper cat-file /var/lib/apt/lists/*_Packages* | grep -E '^(Package|Version): '`
	err = s.withApt(ctx, "", &img, func(ctx context.Context, w *workbox.Box) (err error) {
		exit, err = w.Run(ctx, agentapi.Command{Argv: []string{"/bin/sh", "-c", script}, User: "0:0", Cwd: "/", Env: quiet}, func(p []byte) {
			out.Write(p[:min(len(p), packageListMax-out.Len())])
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	versions := parsePackages(out.String())
	if len(versions) == 0 {
		return nil, sandbox.Errorf(sandbox.Unavailable, "the mirrors have no packages: apt-helper ended with %d", exit.Code)
	}
	return versions, nil
}

// parsePackages reads the names and versions of packages.
func parsePackages(list string) map[string][]string {
	versions := map[string][]string{}
	var name string
	for line := range strings.Lines(list) {
		field, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch {
		case len(value) > sandbox.PackageNameMax:
			name = ""
		case field == "Package":
			name = strings.Clone(value) // not all of the list
		case name != "" && !slices.Contains(versions[name], value) && len(versions[name]) < versionsMax:
			versions[name] = append(versions[name], strings.Clone(value))
		}
	}
	return versions
}
