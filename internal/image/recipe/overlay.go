package recipe

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"
)

// setupName returns the path of a layer's setup script in the staging directory.
func setupName(layer int) string { return fmt.Sprintf(".setup-%d.sh", layer) }

// overlay is a tar of the files over the installed Debian: the recipe's files, files of npm
// packages, and the staging directory. Root owns all of them.
type overlay struct {
	tw   *tar.Writer
	date time.Time
}

// writeOverlay writes the overlay of a recipe to a new file.
func writeOverlay(file string, r *Recipe, packages []npmPackage) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	o := overlay{tw: tar.NewWriter(f), date: r.date}
	if err := o.recipe(r); err != nil {
		return err
	}
	var list bytes.Buffer
	for _, p := range packages {
		fmt.Fprintf(&list, "npm\t%s\t%s\t%s\n", p.Package, p.Version, cmp.Or(p.Arch, "all"))
		if err := o.npm(p); err != nil {
			return fmt.Errorf("unpack %s: %w", p.Package, err)
		}
	}
	if python := r.pip(); len(python) > 0 {
		for _, p := range python {
			fmt.Fprintf(&list, "pip\t%s\t%s\t%s\n", p.Package, p.Version, cmp.Or(p.Arch, "all"))
		}
		if err := o.file(stagingDir+"/"+requirementName, 0o644, []byte(requirements(python))); err != nil {
			return err
		}
		if err := o.file(stagingDir+"/"+pipScriptName, 0o755, []byte(pipScript)); err != nil {
			return err
		}
	}
	if err := o.file(stagingDir+"/.npm-packages", 0o644, list.Bytes()); err != nil {
		return err
	}
	if err := o.tw.Close(); err != nil {
		return err
	}
	return f.Close()
}

// recipe adds the files of the recipe's layers, their build directories and the scripts.
func (o overlay) recipe(r *Recipe) error {
	for i, l := range r.layers {
		if err := o.tree(l.dir, filesDir, "/"); err != nil {
			return err
		}
		if err := o.tree(l.dir, buildDir, stagingDir); err != nil {
			return err
		}
		if l.setup == "" {
			continue
		}
		script, err := fs.ReadFile(l.dir, l.setup)
		if err != nil {
			return err
		}
		if err := o.file(stagingDir+"/"+setupName(i), 0o755, script); err != nil {
			return err
		}
	}
	return o.file(stagingDir+"/"+finishName, 0o755, []byte(finishScript))
}

// file adds one file.
func (o overlay) file(name string, mode int64, data []byte) error {
	if err := o.header(name, mode, int64(len(data))); err != nil {
		return err
	}
	_, err := o.tw.Write(data)
	return err
}

func (o overlay) header(name string, mode, size int64) error {
	return o.tw.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: strings.TrimPrefix(name, "/"), Mode: mode, Size: size, ModTime: o.date,
	})
}

// tree adds the files under from, if there are any, under the directory to. Embedded files have no
// mode of their own, so all get 0644.
func (o overlay) tree(dir fs.FS, from, to string) error {
	err := fs.WalkDir(dir, from, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(dir, p)
		if err != nil {
			return err
		}
		return o.file(path.Join(to, strings.TrimPrefix(p, from)), 0o644, data)
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// npm adds the requested files of an npm package. It fails when the recipe names a missing file.
func (o overlay) npm(p npmPackage) error {
	f, err := os.Open(p.tarball)
	if err != nil {
		return err
	}
	defer f.Close()
	gz, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	used := map[string]bool{}
	for tr := tar.NewReader(gz); ; {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		from, to := p.target(hdr)
		if to == "" {
			continue
		}
		used[from] = true
		mode := int64(0o644)
		if hdr.Mode&0o111 != 0 {
			mode = 0o755
		}
		if err := o.header(to, mode, hdr.Size); err != nil {
			return err
		}
		if _, err := io.Copy(o.tw, tr); err != nil {
			return err
		}
	}
	for from := range p.Files {
		if !used[from] {
			return fmt.Errorf("it has no file %q", from)
		}
	}
	return nil
}

// target returns which of the recipe's entries selects an entry of the package, and its
// destination; "" when none does.
func (s npmSpec) target(hdr *tar.Header) (from, to string) {
	_, name, _ := strings.Cut(hdr.Name, "/") // the first element is always the package's directory
	if hdr.Typeflag != tar.TypeReg || !fs.ValidPath(name) {
		return "", ""
	}
	for _, e := range s.Exclude {
		if name == e || strings.HasPrefix(name, e+"/") {
			return "", ""
		}
	}
	best := -1 // the longest matching entry counts
	for f, t := range s.Files {
		rest, ok := name, f == ""
		if !ok {
			rest, ok = strings.CutPrefix(name+"/", f+"/")
		}
		if ok && len(f) > best {
			best, from, to = len(f), f, path.Join(t, rest)
		}
	}
	return from, to
}
