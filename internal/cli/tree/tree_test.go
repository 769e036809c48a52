package tree

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// Every entry of a hostile stream must stay within the directory.
func TestUnpackStaysInside(t *testing.T) {
	for name, headers := range map[string][]tar.Header{
		"dotdot":             {{Name: "../out", Typeflag: tar.TypeReg, Size: 1}},
		"absolute":           {{Name: "/out", Typeflag: tar.TypeReg, Size: 1}},
		"deep_dotdot":        {{Name: "a/../../out", Typeflag: tar.TypeReg, Size: 1}},
		"through_symlink":    {{Name: "l", Typeflag: tar.TypeSymlink, Linkname: ".."}, {Name: "l/out", Typeflag: tar.TypeReg, Size: 1}},
		"symlink_chain":      {{Name: "a", Typeflag: tar.TypeDir}, {Name: "a/l", Typeflag: tar.TypeSymlink, Linkname: ".."}, {Name: "m", Typeflag: tar.TypeSymlink, Linkname: "a/l/.."}, {Name: "m/out", Typeflag: tar.TypeReg, Size: 1}},
		"hard_link_out":      {{Name: "h", Typeflag: tar.TypeLink, Linkname: "../secret"}, {Name: "h", Typeflag: tar.TypeReg, Size: 1}},
		"hard_link_absolute": {{Name: "h", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"}},
		"device":             {{Name: "d", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}},
		"setuid":             {{Name: "s", Typeflag: tar.TypeReg, Size: 1, Mode: 0o6755}},
	} {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			dir := filepath.Join(parent, "dir")
			secret := filepath.Join(parent, "secret")
			for _, err := range []error{os.Mkdir(dir, 0o755), os.WriteFile(secret, []byte("secret"), 0o600)} {
				if err != nil {
					t.Fatal(err)
				}
			}
			var b bytes.Buffer
			tw := tar.NewWriter(&b)
			for _, h := range headers {
				if err := tw.WriteHeader(&h); err != nil {
					t.Fatal(err)
				}
				if h.Size > 0 {
					if _, err := tw.Write([]byte("x")); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := tw.Close(); err != nil {
				t.Fatal(err)
			}
			err := Unpack(&b, dir, func(string) {})
			t.Log("unpackTree:", err)
			if entries, _ := os.ReadDir(parent); len(entries) != 2 {
				t.Errorf("entries beside the directory: %v", entries)
			}
			if data, _ := os.ReadFile(secret); string(data) != "secret" {
				t.Errorf("the file beside the directory now holds %q", data)
			}
			_ = filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
				if err != nil {
					t.Error(err)
				} else if info.Mode()&(os.ModeDevice|os.ModeSetuid|os.ModeSetgid) != 0 {
					t.Errorf("%s has mode %v", path, info.Mode())
				}
				return nil
			})
		})
	}
}
