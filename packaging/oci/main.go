// Command oci writes the image of a Modbox server as a tar of an OCI image layout, with an image
// for each architecture. The image has one layer: the program, certificates of public
// certificate authorities, NOTICE and /tmp. It runs in the root of the source. The same arguments give the same bytes.
//
//	oci -version v1.2.3 -commit 0123abc -created 1700000000 -o modbox.tar amd64=DIR/modbox arm64=DIR/modbox
package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// release holds the properties that all images of the archive share.
type release struct {
	version, commit string
	created         time.Time
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "oci:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("oci", flag.ContinueOnError)
	version := flags.String("version", "", "version of the release")
	commit := flags.String("commit", "", "commit of the release")
	created := flags.Int64("created", 0, "time of all files and of the image, in seconds since 1970")
	out := flags.String("o", "", "file to write")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *version == "" || *out == "" || flags.NArg() == 0 {
		return errors.New("usage: oci -version VERSION -o FILE ARCHITECTURE=PROGRAM [ARCHITECTURE=PROGRAM]")
	}
	r := release{version: *version, commit: *commit, created: time.Unix(*created, 0).UTC()}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arg := range flags.Args() {
		architecture, program, ok := strings.Cut(arg, "=")
		if !ok {
			return fmt.Errorf("%q is not ARCHITECTURE=PROGRAM", arg)
		}
		image, err := r.image(architecture, program)
		if err != nil {
			return fmt.Errorf("image for %s: %w", architecture, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}},
		})
	}
	return r.write(index, *out)
}

// image returns the image of a program.
func (r release) image(architecture, program string) (v1.Image, error) {
	files, err := r.files(program)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(files)), nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: v1.Time{Time: r.created}, CreatedBy: "make release", Comment: "modbox " + r.version},
	})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", architecture, v1.Time{Time: r.created}
	config.Config = v1.Config{
		Entrypoint: []string{"/usr/bin/modbox"},
		Cmd:        []string{"server"},
		Env:        []string{"PATH=/usr/bin", "HOME=/root"},
		Volumes:    map[string]struct{}{"/var/lib/modbox": {}},
		Labels: map[string]string{
			"org.opencontainers.image.title":    "Modbox",
			"org.opencontainers.image.version":  r.version,
			"org.opencontainers.image.revision": r.commit,
			"org.opencontainers.image.source":   "https://github.com/modbox/modbox",
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return mutate.ConfigFile(image, config)
}

// files returns the layer's files as a tar.
func (r release) files(program string) ([]byte, error) {
	content, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	notice, err := os.ReadFile("NOTICE")
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, dir := range []struct {
		name string
		mode int64
	}{
		{"etc/", 0o755},
		{"etc/ssl/", 0o755},
		{"etc/ssl/certs/", 0o755},
		{"root/", 0o700},
		{"run/", 0o755},
		{"tmp/", 0o1777},
		{"usr/", 0o755},
		{"usr/bin/", 0o755},
		{"usr/share/", 0o755},
		{"usr/share/doc/", 0o755},
		{"usr/share/doc/modbox/", 0o755},
		{"var/", 0o755},
		{"var/lib/", 0o755},
		{"var/lib/modbox/", 0o700},
	} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir.name, Mode: dir.mode, ModTime: r.created}); err != nil {
			return nil, err
		}
	}
	for _, file := range []struct {
		name    string
		mode    int64
		content []byte
	}{
		{"etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/usr/bin/modbox\n")},
		{"etc/group", 0o644, []byte("root:x:0:\n")},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, authorities()},
		{"usr/bin/modbox", 0o755, content},
		{"usr/share/doc/modbox/NOTICE", 0o644, notice},
	} {
		if err := r.file(w, file.name, file.mode, file.content); err != nil {
			return nil, err
		}
	}
	err = w.Close()
	return b.Bytes(), err
}

func (r release) file(w *tar.Writer, name string, mode int64, content []byte) error {
	header := tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content)), ModTime: r.created}
	if err := w.WriteHeader(&header); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}

// authorities returns the certificates of public certificate authorities in PEM. Certificates
// that count with constraints only are missing, because PEM has no place for constraints.
func authorities() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			b.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	return b.Bytes()
}

// write writes an index, and the images in it, as a tar of an OCI image layout.
func (r release) write(index v1.ImageIndex, out string) error {
	dir, err := os.MkdirTemp(filepath.Dir(out), ".oci-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	l, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	annotations := map[string]string{"org.opencontainers.image.ref.name": "modbox:" + strings.TrimPrefix(r.version, "v")}
	if err := l.AppendIndex(index, layout.WithAnnotations(annotations)); err != nil {
		return err
	}
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	defer f.Close()
	w := tar.NewWriter(f)
	if err := r.pack(w, dir); err != nil {
		return err
	}
	return errors.Join(w.Close(), f.Close())
}

// pack adds the files of a directory to an archive, in the order of their names.
func (r release) pack(w *tar.Writer, dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return r.file(w, filepath.ToSlash(name), 0o644, content)
	})
}
