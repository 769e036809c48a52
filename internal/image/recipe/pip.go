package recipe

import (
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"sync"

	"github.com/modbox/modbox/internal/sandbox"
)

// pipSpec is a Python package, of which a wheel with one of the hashes is installed.
type pipSpec struct {
	Package string   `yaml:"package"`
	Version string   `yaml:"version"`
	SHA256  []string `yaml:"sha256"` // of wheels, in hexadecimal
	Arch    string   `yaml:"arch"`   // Debian architecture; empty for all
}

var (
	pipName    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`) })
	pipVersion = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9][A-Za-z0-9.!+]*$`) })
	pipHash    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{64}$`) })
)

// Names in the staging directory: the script that installs the Python packages, and their list.
const (
	pipScriptName   = ".pip.sh"
	requirementName = ".pip-requirements"
)

// pipScript installs the Python packages of a recipe in a new root filesystem, for all its users. Wheels
// run no code while they are installed; pip compares each with its hashes, and adds no package by itself.
const pipScript = `python3 -m pip install --require-hashes --only-binary=:all: --no-deps --no-compile --no-cache-dir --no-input \
	--break-system-packages --root-user-action=ignore --disable-pip-version-check --progress-bar=off -r "$BUILD/` + requirementName + `"
`

func checkPIP(specs []pipSpec) error {
	for _, p := range specs {
		switch {
		case !pipName().MatchString(p.Package):
			return sandbox.InvalidField("pip.package", "%q is not the name of a Python package", p.Package)
		case !pipVersion().MatchString(p.Version):
			return sandbox.InvalidField("pip.version", "%q of %s is not an exact version", p.Version, p.Package)
		case len(p.SHA256) == 0:
			return sandbox.InvalidField("pip.sha256", "%s has no hash of a wheel", p.Package)
		}
		for _, hash := range p.SHA256 {
			if !pipHash().MatchString(hash) {
				return sandbox.InvalidField("pip.sha256", "%q of %s is not a SHA-256 in 64 hexadecimal digits", hash, p.Package)
			}
		}
	}
	return nil
}

// pip returns the Python packages of the recipe for this architecture.
func (r *Recipe) pip() []pipSpec {
	var packages []pipSpec
	for _, p := range r.spec.PIP {
		if p.Arch == "" || p.Arch == runtime.GOARCH {
			packages = append(packages, p)
		}
	}
	return packages
}

// requirements returns the list of packages for pip.
func requirements(packages []pipSpec) string {
	var b strings.Builder
	for _, p := range packages {
		fmt.Fprintf(&b, "%s==%s", p.Package, p.Version)
		for _, hash := range p.SHA256 {
			fmt.Fprintf(&b, " --hash=sha256:%s", hash)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
