package image

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/modbox/modbox/internal/sandbox"
)

// RecipeFile is the name of the file that makes a directory a recipe.
const RecipeFile = "recipe.yaml"

// The other names with a meaning in a recipe's directory, both optional.
const (
	filesDir = "files" // copied over the root filesystem as it is
	buildDir = "build" // given to the setup script as $BUILD, not part of the image
)

// generation is part of every recipe's hash. It changes when this package
// changes what it makes from a recipe, so that cached images are built anew.
const generation = "1"

// Recipe is a checked recipe: what to install and how the image is run. It is
// immutable and safe for concurrent use.
type Recipe struct {
	spec  recipeSpec
	image sandbox.Image // without what only a build knows
	date  time.Time
	dir   fs.FS
	hash  string
}

// recipeSpec is recipe.yaml as written.
type recipeSpec struct {
	Name          string       `yaml:"name"`
	Tag           string       `yaml:"tag"`
	Description   string       `yaml:"description"`
	Default       bool         `yaml:"default"`
	Date          string       `yaml:"date"`
	Debian        debianSpec   `yaml:"debian"`
	NPM           []npmSpec    `yaml:"npm"`
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

// npmSpec takes files out of an npm package.
type npmSpec struct {
	Package   string `yaml:"package"`
	Version   string `yaml:"version"`
	Integrity string `yaml:"integrity"` // "sha512-" and base64, as npm writes it
	Arch      string `yaml:"arch"`      // Debian architecture; empty for all
	// Files maps a path in the package to one in the image: a file to a file, a
	// directory to a directory, "" is the whole package.
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

// LoadRecipe reads the recipe in dir. An error has code Invalid and names the
// field, or is the file system's.
func LoadRecipe(dir fs.FS) (*Recipe, error) {
	data, err := fs.ReadFile(dir, RecipeFile)
	if err != nil {
		return nil, fmt.Errorf("read recipe: %w", err)
	}
	r := &Recipe{dir: dir}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&r.spec); err != nil && !errors.Is(err, io.EOF) {
		return nil, sandbox.Wrap(sandbox.Invalid, err, "%s is not a valid recipe", RecipeFile)
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	if r.hash, err = r.hashFiles(); err != nil {
		return nil, fmt.Errorf("read recipe %s: %w", r.Ref(), err)
	}
	return r, nil
}

// Ref returns name:tag.
func (r *Recipe) Ref() string { return r.image.Ref() }

// Hash identifies everything the recipe contributes to the image: its files, the
// machine's architecture and the version of this package. Package versions are
// not part of it.
func (r *Recipe) Hash() string { return r.hash }

// Image returns the catalogue entry as far as the recipe determines it: without
// digest, size and times.
func (r *Recipe) Image() sandbox.Image { return r.image }

var (
	packageName = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]*$`)
	npmName     = regexp.MustCompile(`^(@[a-z0-9][a-z0-9._-]*/)?[a-z0-9][a-z0-9._-]*$`)
	npmVersion  = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`)
	suiteName   = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
	excludePath = regexp.MustCompile(`^/[A-Za-z0-9/*?._+-]+$`)
)

// check validates the spec and derives the image and date from it.
func (r *Recipe) check() error {
	s := &r.spec
	if s.Tag == "" {
		s.Tag = "latest"
	}
	if err := checkName(s.Name, s.Tag); err != nil {
		return err
	}
	var err error
	if r.date, err = time.Parse(time.DateOnly, s.Date); err != nil {
		return sandbox.InvalidField("date", "%q is not a date like 2025-08-09", s.Date)
	}
	if !suiteName.MatchString(s.Debian.Suite) {
		return sandbox.InvalidField("debian.suite", "%q is not the name of a Debian suite", s.Debian.Suite)
	}
	for _, p := range s.Debian.Packages {
		if !packageName.MatchString(p) {
			return sandbox.InvalidField("debian.packages", "%q is not the name of a Debian package", p)
		}
	}
	for _, p := range s.Debian.ExcludeFiles {
		if !excludePath.MatchString(p) {
			return sandbox.InvalidField("debian.exclude_files", "%q is not an absolute path, perhaps with * and ?", p)
		}
	}
	if err := checkNPM(s.NPM); err != nil {
		return err
	}
	if s.Setup != "" {
		if _, err := fs.ReadFile(r.dir, s.Setup); err != nil {
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

func checkNPM(specs []npmSpec) error {
	for _, n := range specs {
		switch {
		case !npmName.MatchString(n.Package):
			return sandbox.InvalidField("npm.package", "%q is not the name of an npm package", n.Package)
		case !npmVersion.MatchString(n.Version):
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
	r.image = sandbox.Image{
		ID: imageID(s.Name + ":" + s.Tag), Name: s.Name, Tag: s.Tag, Description: s.Description, IsDefault: s.Default,
		MemoryBytes: memory.Value(), ReadinessPort: s.ReadinessPort, TTL: ttl,
		Config: sandbox.ImageConfig{
			Entrypoint: s.Config.Entrypoint, Cmd: s.Config.Cmd, Env: env,
			WorkingDir: s.Config.WorkingDir, User: s.Config.User,
		},
	}
	return nil
}

// hashFiles hashes the recipe's files, each with its path and length, in order.
func (r *Recipe) hashFiles() (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "modbox recipe %s\n%s\n%q\n", generation, runtime.GOARCH, finishScript)
	err := fs.WalkDir(r.dir, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if !d.Type().IsRegular() {
			return sandbox.Errorf(sandbox.Invalid, "%s is neither a file nor a directory", p)
		}
		data, err := fs.ReadFile(r.dir, p)
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%q %d\n", p, len(data))
		_, err = h.Write(data)
		return err
	})
	return hex.EncodeToString(h.Sum(nil)), err
}
