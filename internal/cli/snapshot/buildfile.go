package snapshot

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/bmatcuk/doublestar/v4"
	"go.yaml.in/yaml/v3"

	"github.com/modbox/modbox/internal/cli/tree"
)

// buildFile describes a snapshot to build.
type buildFile struct {
	Version     int               `yaml:"version"`
	Runtime     string            `yaml:"runtime"`
	Name        string            `yaml:"name"`
	Description string            `yaml:"description"`
	Dir         string            `yaml:"dir"`
	AptPackages []string          `yaml:"apt_packages"`
	NpmPackages []string          `yaml:"npm_packages"`
	PipPackages []string          `yaml:"pip_packages"`
	Files       []string          `yaml:"files"`
	Env         map[string]string `yaml:"env"`
	Metadata    map[string]string `yaml:"metadata"`
	Public      bool              `yaml:"public"`
}

// foreignFile is a build file of Agentuity, which has other names for lists of packages.
type foreignFile struct {
	buildFile    `yaml:",inline"`
	Dependencies []string `yaml:"dependencies"`
	Packages     []string `yaml:"packages"`
}

// Names of build files. Unknown keys are errors in our build files, not in Agentuity's.
var (
	buildFileNames   = []string{"modbox-snapshot.yaml", "modbox-snapshot.yml"}
	foreignFileNames = []string{"agentuity-snapshot.yaml", "agentuity-snapshot.yml", "agentuity-snapshot.json"}
)

// buildFileMax bounds a build file.
const buildFileMax = 1 << 20

// findBuildFile returns the path of the build file in dir.
func findBuildFile(dir string) (string, error) {
	for _, name := range slices.Concat(buildFileNames, foreignFileNames) {
		p := filepath.Join(dir, name)
		if _, err := os.Stat(p); err == nil {
			return p, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return "", fmt.Errorf("there is no %s in %s", buildFileNames[0], dir)
}

// readBuildFile reads a build file and checks it as far as possible without a server.
func readBuildFile(name string) (*buildFile, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := decodeBuildFile(io.LimitReader(f, buildFileMax), slices.Contains(foreignFileNames, filepath.Base(name)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	switch {
	case b.Version != 1:
		err = errors.New("version: must be 1")
	case b.Runtime == "":
		err = errors.New("runtime: must name an image")
	case len(b.AptPackages)+len(b.NpmPackages)+len(b.PipPackages)+len(b.Files)+len(b.Env) == 0:
		err = errors.New("it must have at least one of packages, files and env")
	case b.Dir != "" && !filepath.IsLocal(b.Dir):
		err = errors.New("dir: must be a directory below the file's directory")
	}
	for _, p := range b.Files {
		if !doublestar.ValidatePattern(strings.TrimPrefix(p, "!")) {
			err = errors.Join(err, fmt.Errorf("files: %q is no pattern", p))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return b, nil
}

// decodeBuildFile reads YAML or JSON; an empty file is an empty build file.
func decodeBuildFile(r io.Reader, foreign bool) (*buildFile, error) {
	dec := yaml.NewDecoder(r)
	var f foreignFile
	var err error
	if foreign {
		err = dec.Decode(&f)
		f.AptPackages, f.NpmPackages = f.Dependencies, f.Packages
	} else {
		dec.KnownFields(true)
		err = dec.Decode(&f.buildFile)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return &f.buildFile, nil
}

var variable = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`) })

// expand replaces ${NAME} in the values of m.
func expand(field string, m, values map[string]string) (map[string]string, error) {
	out := make(map[string]string, len(m))
	var missing []string
	for key, text := range m {
		out[key] = variable().ReplaceAllStringFunc(text, func(ref string) string {
			name := variable().FindStringSubmatch(ref)[1]
			value, ok := values[name]
			if !ok {
				missing = append(missing, name)
			}
			return value
		})
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return nil, fmt.Errorf("%s: no value is given for %s; pass --%s NAME=VALUE", field, strings.Join(slices.Compact(missing), ", "), field)
	}
	return out, nil
}

// neverBuilt are patterns of files that no build includes.
var neverBuilt = []string{"**/.git", "**/node_modules", "**/.agentuity", "**/.env*"}

// builtFile is one file of a build.
type builtFile struct {
	path  string
	entry fs.DirEntry
	sum   string // of its content, or of the target of a symlink
	size  int64
	mode  fs.FileMode
}

// matches reports whether one of the patterns matches a path or a directory above it.
func matches(patterns []string, name string) bool {
	for p := name; p != "."; p = path.Dir(p) {
		for _, pattern := range patterns {
			if doublestar.MatchUnvalidated(path.Clean(pattern), p) {
				return true
			}
		}
	}
	return false
}

// collect returns the files below root that the build file selects, sorted by name.
func (b *buildFile) collect(root *os.Root) ([]builtFile, error) {
	var wanted []string
	unwanted := slices.Clone(neverBuilt)
	for _, p := range b.Files {
		if without, ok := strings.CutPrefix(p, "!"); ok {
			unwanted = append(unwanted, without)
		} else {
			wanted = append(wanted, p)
		}
	}
	var files []builtFile
	err := fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name == ".":
			return nil
		case matches(unwanted, name) && d.IsDir():
			return fs.SkipDir
		case matches(unwanted, name) || d.IsDir() || !matches(wanted, name):
			return nil
		case !d.Type().IsRegular() && d.Type() != fs.ModeSymlink:
			return nil
		}
		f, err := describeFile(root, name, d)
		files = append(files, f)
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(wanted) > 0 && len(files) == 0 {
		return nil, fmt.Errorf("files: nothing matches %s", strings.Join(wanted, ", "))
	}
	return files, nil
}

func describeFile(root *os.Root, name string, d fs.DirEntry) (builtFile, error) {
	info, err := d.Info()
	if err != nil {
		return builtFile{}, err
	}
	f := builtFile{path: name, entry: d, size: info.Size(), mode: info.Mode().Perm()}
	sum := sha256.New()
	if d.Type() == fs.ModeSymlink {
		target, err := root.Readlink(name)
		if err != nil {
			return f, err
		}
		_, _ = io.WriteString(sum, "-> "+target) // writing to a hash does not fail
	} else {
		file, err := root.Open(name)
		if err != nil {
			return f, err
		}
		defer file.Close()
		if _, err := io.Copy(sum, file); err != nil {
			return f, err
		}
	}
	f.sum = hex.EncodeToString(sum.Sum(nil))
	return f, nil
}

// contentHash identifies the content of a build.
func (b *buildFile) contentHash(files []builtFile) string {
	sorted := func(list []string) []string { return slices.Sorted(slices.Values(list)) }
	lines := []string{
		"runtime:" + b.Runtime, "description:" + b.Description,
		"apt_packages:" + strings.Join(sorted(b.AptPackages), ","), "npm_packages:" + strings.Join(sorted(b.NpmPackages), ","),
		"pip_packages:" + strings.Join(sorted(b.PipPackages), ","),
	}
	var of []string
	for _, f := range files {
		of = append(of, fmt.Sprintf("file:%s:%d:%s:%04o", f.path, f.size, f.sum, f.mode))
	}
	lines = append(lines, sorted(of)...)
	for _, key := range slices.Sorted(maps.Keys(b.Env)) {
		lines = append(lines, "env:"+key+"="+b.Env[key])
	}
	access := "private"
	if b.Public {
		access = "public"
	}
	sum := sha256.Sum256([]byte(strings.Join(append(lines, "access:"+access), "\n")))
	return hex.EncodeToString(sum[:])
}

// packBuild writes files as a tar.gz.
func packBuild(w io.Writer, root *os.Root, files []builtFile) error {
	zw := gzip.NewWriter(w)
	tw := tar.NewWriter(zw)
	for _, f := range files {
		if err := tree.PackEntry(tw, root, f.path, f.entry); err != nil {
			return fmt.Errorf("pack %s: %w", f.path, err)
		}
	}
	return errors.Join(tw.Close(), zw.Close())
}

// buildRoot opens the directory whose files are built.
func (b *buildFile) buildRoot(name string) (*os.Root, error) {
	return os.OpenRoot(filepath.Join(filepath.Dir(name), cmp.Or(b.Dir, ".")))
}
