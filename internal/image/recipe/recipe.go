// Package recipe reads the recipes of built-in images and makes their files.
//
// A [Recipe] is a directory with a recipe.yaml, which lists the content of an image and its
// configuration. A [Bootstrapper], in general [Debian], writes the files as one tar stream;
// [Recipe.Write] makes a root filesystem of it.
package recipe

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	ociname "github.com/google/go-containerregistry/pkg/name"
	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/modbox/modbox/internal/image/reference"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/sandbox"
)

// File is the name of the file that makes a directory a recipe.
const File = "recipe.yaml"

// The other names with a meaning in a recipe's directory, both optional.
const (
	filesDir = "files" // copied over the root filesystem as it is
	buildDir = "build" // given to the setup script as $BUILD, not part of the image
)

// generation is part of every recipe's hash. It changes when this package makes another result of a
// recipe, so that cached images are built anew.
const generation = "1"

// Recipe is a checked recipe: the packages and the configuration of an image. It is immutable and
// safe for concurrent use.
type Recipe struct {
	spec    recipeSpec // with what it inherits
	image   spec.Image // without the fields that a build sets
	runtime *spec.Runtime
	date    time.Time
	layers  []recipeLayer // the inherited layers first
	hash    string
}

// recipeLayer is the contribution of a recipe directory.
type recipeLayer struct {
	dir   fs.FS
	setup string // path of its script in dir; "" for none
}

// recipeSpec is the content of recipe.yaml.
type recipeSpec struct {
	Name          string       `yaml:"name"`
	Tag           string       `yaml:"tag"`
	From          string       `yaml:"from"`
	Pull          string       `yaml:"pull"`
	Description   string       `yaml:"description"`
	Default       bool         `yaml:"default"`
	OnDemand      bool         `yaml:"on_demand"`
	Date          string       `yaml:"date"`
	Debian        debianSpec   `yaml:"debian"`
	NPM           []npmSpec    `yaml:"npm"`
	PIP           []pipSpec    `yaml:"pip"`
	Setup         string       `yaml:"setup"`
	FutureDated   []string     `yaml:"future_dated"`
	Config        configSpec   `yaml:"config"`
	Memory        string       `yaml:"memory"`
	ReadinessPort uint16       `yaml:"readiness_port"`
	TTL           yamlDuration `yaml:"ttl"`
}

type debianSpec struct {
	Suite        string   `yaml:"suite"`
	Packages     []string `yaml:"packages"`
	ExcludeFiles []string `yaml:"exclude_files"`
}

// npmSpec selects files of an npm package.
type npmSpec struct {
	Package   string `yaml:"package"`
	Version   string `yaml:"version"`
	Integrity string `yaml:"integrity"` // "sha512-" and base64, as npm writes it
	Arch      string `yaml:"arch"`      // Debian architecture; empty for all
	// Files maps paths in the package to paths in the image: a file to a file, a directory to a
	// directory, "" is the whole package.
	Files   map[string]string `yaml:"files"`
	Exclude []string          `yaml:"exclude"` // paths in the package
}

type configSpec struct {
	Entrypoint []string          `yaml:"entrypoint"`
	Cmd        []string          `yaml:"cmd"`
	Env        map[string]string `yaml:"env"`
	WorkingDir string            `yaml:"working_dir"`
	User       string            `yaml:"user"`
}

// yamlDuration is a duration written as in Go, e.g. "1h30m".
type yamlDuration time.Duration

func (d *yamlDuration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = yamlDuration(v)
	return err
}

// Load reads the recipe in dir, whose "from" may name a recipe in known. An error has code Invalid
// and names the field, NotFound for an unknown "from", or is the file system's.
func Load(dir fs.FS, known ...*Recipe) (*Recipe, error) {
	r := &Recipe{}
	if err := decodeYAML(dir, File, &r.spec); err != nil {
		return nil, err
	}
	var parent *Recipe
	if r.spec.From != "" {
		i := slices.IndexFunc(known, func(k *Recipe) bool { return k.Ref() == r.spec.From })
		if i < 0 {
			return nil, sandbox.Errorf(sandbox.NotFound, "from: there is no recipe %q", r.spec.From)
		}
		parent = known[i]
		r.layers = slices.Clone(parent.layers)
	}
	r.layers = append(r.layers, recipeLayer{dir: dir, setup: r.spec.Setup})
	if err := r.check(dir, parent); err != nil {
		return nil, err
	}
	var err error
	if r.runtime, err = loadRuntime(dir, &r.image); err != nil {
		return nil, err
	}
	if r.hash, err = hashFiles(dir, parent); err != nil {
		return nil, fmt.Errorf("read recipe %s: %w", r.Ref(), err)
	}
	if len(r.spec.PIP) > 0 {
		sum := sha256.Sum256([]byte(r.hash + pipScript))
		r.hash = hex.EncodeToString(sum[:])
	}
	return r, nil
}

// decodeYAML reads a file with no unknown keys.
func decodeYAML(dir fs.FS, name string, into any) error {
	data, err := fs.ReadFile(dir, name)
	if err != nil {
		return fmt.Errorf("read recipe: %w", err)
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		return sandbox.Wrap(sandbox.Invalid, err, "%s is not valid", name)
	}
	return nil
}

// Runtime returns the description of the image as a runtime; nil when it is none.
func (r *Recipe) Runtime() *spec.Runtime { return r.runtime }

// Pull returns the reference of the image in a registry; "" for an image that is made here.
func (r *Recipe) Pull() string { return r.spec.Pull }

// Default reports whether the image is for sandboxes that name none.
func (r *Recipe) Default() bool { return r.spec.Default }

// OnDemand reports whether the image is built at its first use, and not with the other built-in
// images.
func (r *Recipe) OnDemand() bool { return r.spec.OnDemand }

// Ref returns name:tag.
func (r *Recipe) Ref() string { return r.image.Ref() }

// Hash identifies everything the recipe contributes to the image: its files, the
// machine's architecture and the version of this package. Package versions are
// not part of it.
func (r *Recipe) Hash() string { return r.hash }

// Image returns the description of the image as far as the recipe determines it: without digest,
// size and times.
func (r *Recipe) Image() spec.Image { return r.image }

var (
	packageName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]*$`) })
	npmName     = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(@[a-z0-9][a-z0-9._-]*/)?[a-z0-9][a-z0-9._-]*$`) })
	npmVersion  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`) })
	suiteName   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z][a-z0-9-]*$`) })
	excludePath = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^/[A-Za-z0-9/*?._+-]+$`) })
)

// check validates the spec, completes it with the inherited fields, and derives the image and date
// from it.
func (r *Recipe) check(dir fs.FS, parent *Recipe) error {
	s := &r.spec
	if parent != nil {
		s.inherit(&parent.spec)
	}
	if s.Tag == "" {
		s.Tag = "latest"
	}
	if err := reference.CheckLocal(s.Name, s.Tag); err != nil {
		return err
	}
	if s.Pull != "" {
		return r.checkPulled()
	}
	var err error
	if r.date, err = time.Parse(time.DateOnly, s.Date); err != nil {
		return sandbox.InvalidField("date", "%q is not a date like 2025-08-09", s.Date)
	}
	if !suiteName().MatchString(s.Debian.Suite) {
		return sandbox.InvalidField("debian.suite", "%q is not the name of a Debian suite", s.Debian.Suite)
	}
	for _, p := range s.Debian.Packages {
		if !packageName().MatchString(p) {
			return sandbox.InvalidField("debian.packages", "%q is not the name of a Debian package", p)
		}
	}
	for _, p := range s.Debian.ExcludeFiles {
		if !excludePath().MatchString(p) {
			return sandbox.InvalidField("debian.exclude_files", "%q is not an absolute path, perhaps with * and ?", p)
		}
	}
	if err := checkNPM(s.NPM); err != nil {
		return err
	}
	if err := checkPIP(s.PIP); err != nil {
		return err
	}
	if s.Setup != "" {
		if _, err := fs.ReadFile(dir, s.Setup); err != nil {
			return sandbox.InvalidField("setup", "%q is not the path of a file in the recipe", s.Setup)
		}
	}
	for _, p := range s.FutureDated {
		if !path.IsAbs(p) || path.Clean(p) != p {
			return sandbox.InvalidField("future_dated", "%q is not a clean absolute path", p)
		}
	}
	return r.deriveImage()
}

// checkPulled is check for a recipe of an image in a registry.
func (r *Recipe) checkPulled() error {
	s := &r.spec
	if _, err := ociname.ParseReference(s.Pull, ociname.WithDefaultRegistry(reference.Local)); err != nil {
		return sandbox.InvalidField("pull", "%.100q is not an image reference like library/ubuntu:24.04", s.Pull)
	}
	rest := *s
	rest.Name, rest.Tag, rest.Pull, rest.Description, rest.Memory = "", "", "", "", ""
	rest.Default, rest.OnDemand, rest.ReadinessPort, rest.TTL = false, false, 0, 0
	if !reflect.ValueOf(rest).IsZero() {
		return sandbox.InvalidField("pull", "an image that is pulled is taken as it is: only tag, description, memory, readiness_port and ttl may be said of it")
	}
	return r.deriveImage()
}

func checkNPM(specs []npmSpec) error {
	for _, n := range specs {
		switch {
		case !npmName().MatchString(n.Package):
			return sandbox.InvalidField("npm.package", "%q is not the name of an npm package", n.Package)
		case !npmVersion().MatchString(n.Version):
			return sandbox.InvalidField("npm.version", "%q of %s is not an exact version", n.Version, n.Package)
		case !strings.HasPrefix(n.Integrity, sha512Prefix):
			return sandbox.InvalidField("npm.integrity", "%q of %s does not begin with %s", n.Integrity, n.Package, sha512Prefix)
		}
		for from, to := range n.Files {
			if from != "" && !fs.ValidPath(from) {
				return sandbox.InvalidField("npm.files", "%q of %s is not a path in the package", from, n.Package)
			}
			if !path.IsAbs(to) || path.Clean(to) != to {
				return sandbox.InvalidField("npm.files", "%q of %s is not a clean absolute path", to, n.Package)
			}
		}
	}
	return nil
}

func (r *Recipe) deriveImage() error {
	s := &r.spec
	memory, err := resource.ParseQuantity(s.Memory)
	if err != nil || memory.Value() < sandbox.MemoryMin {
		return sandbox.InvalidField("memory", "%q is not an amount of memory of at least 64Mi", s.Memory)
	}
	ttl := time.Duration(s.TTL)
	if ttl != 0 && (ttl < sandbox.TTLMin || ttl > sandbox.TTLMax) {
		return sandbox.InvalidField("ttl", "%s is not between %s and %s", ttl, sandbox.TTLMin, sandbox.TTLMax)
	}
	if s.Config.WorkingDir != "" && !path.IsAbs(s.Config.WorkingDir) {
		return sandbox.InvalidField("config.working_dir", "%q is not an absolute path", s.Config.WorkingDir)
	}
	var env []string
	for _, k := range slices.Sorted(maps.Keys(s.Config.Env)) {
		if k == "" || strings.ContainsAny(k, "=\x00") {
			return sandbox.InvalidField("config.env", "%q is not the name of a variable", k)
		}
		env = append(env, k+"="+s.Config.Env[k])
	}
	r.image = spec.Image{
		ID: reference.ImageID(s.Name + ":" + s.Tag), Name: s.Name, Tag: s.Tag, Description: s.Description, IsDefault: s.Default,
		MemoryBytes: memory.Value(), ReadinessPort: s.ReadinessPort, TTL: ttl,
		Config: spec.Config{
			Entrypoint: s.Config.Entrypoint, Cmd: s.Config.Cmd, Env: env,
			WorkingDir: s.Config.WorkingDir, User: s.Config.User,
		},
	}
	return nil
}

// hashFiles hashes the recipe's files, each with its path and length, in order, and the inherited
// recipes. The description of the runtime is not part of the image.
func hashFiles(dir fs.FS, parent *Recipe) (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "modbox recipe %s\n%s\n%q\n", generation, runtime.GOARCH, finishScript)
	if parent != nil {
		fmt.Fprintf(h, "from %s\n", parent.hash)
	}
	err := fs.WalkDir(dir, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || p == RuntimeFile {
			return err
		}
		if !d.Type().IsRegular() {
			return sandbox.Errorf(sandbox.Invalid, "%s is neither a file nor a directory", p)
		}
		data, err := fs.ReadFile(dir, p)
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%q %d\n", p, len(data))
		_, err = h.Write(data)
		return err
	})
	return hex.EncodeToString(h.Sum(nil)), err
}

// inherit completes s with fields of a parent. Lists are concatenated; fields about the use of the
// image, such as its readiness port, are not inherited.
func (s *recipeSpec) inherit(parent *recipeSpec) {
	s.Date = cmp.Or(s.Date, parent.Date)
	s.Memory = cmp.Or(s.Memory, parent.Memory)
	s.Debian.Suite = cmp.Or(s.Debian.Suite, parent.Debian.Suite)
	s.Debian.Packages = slices.Concat(parent.Debian.Packages, s.Debian.Packages)
	s.Debian.ExcludeFiles = slices.Concat(parent.Debian.ExcludeFiles, s.Debian.ExcludeFiles)
	s.NPM = slices.Concat(parent.NPM, s.NPM)
	s.PIP = slices.Concat(parent.PIP, s.PIP)
	s.FutureDated = slices.Concat(parent.FutureDated, s.FutureDated)
	c := &s.Config
	c.User = cmp.Or(c.User, parent.Config.User)
	c.WorkingDir = cmp.Or(c.WorkingDir, parent.Config.WorkingDir)
	if c.Entrypoint == nil && c.Cmd == nil {
		c.Entrypoint, c.Cmd = parent.Config.Entrypoint, parent.Config.Cmd
	}
	env := maps.Clone(parent.Config.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, c.Env)
	c.Env = env
}
