package recipe_test

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/modbox/modbox/internal/image/recipe"
	"github.com/modbox/modbox/internal/sandbox"
)

// wheel returns a Python package with a module of its name.
func wheel(t *testing.T, name, version string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	info := fmt.Sprintf("%s-%s.dist-info/", name, version)
	for _, f := range [][2]string{
		{name + ".py", "x = 1\n"},
		{info + "METADATA", fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: %s\nRequires-Dist: missing\n", name, version)},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{info + "RECORD", fmt.Sprintf("%s.py,,\n%[2]sMETADATA,,\n%[2]sWHEEL,,\n%[2]sRECORD,,\n", name, info)},
	} {
		w, err := z.Create(f[0])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, f[1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestPip has a real pip run the script that installs the Python packages of a recipe, from an index of the test and
// into a directory of the test. The package needs another, which the recipe does not name and pip does not add.
func TestPip(t *testing.T) {
	data := wheel(t, "hello", "1.0")
	const name = "hello-1.0-py3-none-any.whl"
	index := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, name) {
			_, _ = w.Write(data)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, "<a href=\"/files/%s\">%[1]s</a>", name)
	}))
	defer index.Close()
	target := t.TempDir()
	programs(t, map[string]string{"TARGET": target}, map[string]string{"mmdebstrap": `
PATH=/usr/bin:/bin
tar -xf overlay.tar
export PIP_TARGET="$TARGET" BUILD="$PWD/.modbox-build"
sh -eu "$BUILD/.pip.sh" >&2`})
	t.Setenv("PIP_INDEX_URL", index.URL+"/simple")
	install := func(sum string) error {
		r, err := recipe.Load(fstest.MapFS{"recipe.yaml": {Data: fmt.Appendf(nil, `
name: a/b
date: 2025-01-02
debian: {suite: trixie, packages: [python3-pip]}
memory: 64Mi
pip:
  - {package: hello, version: "1.0", sha256: [%s]}
`, sum)}})
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = bootstrap(t.Context(), t, r, io.Discard)
		return err
	}
	if err := install(strings.Repeat("0a", 32)); sandbox.CodeOf(err) != sandbox.Unavailable || !strings.Contains(err.Error(), fmt.Sprintf("%x", sha256.Sum256(data))) {
		t.Errorf("a wheel with another hash: %v, want an error that names its hash", err)
	}
	if _, err := os.Stat(filepath.Join(target, "hello.py")); err == nil {
		t.Error("a wheel with another hash is installed")
	}
	if err := install(fmt.Sprintf("%x", sha256.Sum256(data))); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(target, "hello.py")); err != nil {
		t.Errorf("the package is not installed: %v", err)
	}
}
