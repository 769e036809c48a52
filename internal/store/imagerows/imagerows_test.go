package imagerows_test

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/modbox/modbox/internal/image/archive"
	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/image/recipe"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/imagerows"
	"github.com/modbox/modbox/internal/store/storetest"
)

func hash(t *testing.T, c string) v1.Hash {
	t.Helper()
	h, _, err := v1.SHA256(strings.NewReader(c))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// records are one record with every field, and one with as few as possible.
func records(t *testing.T) []index.Record {
	at := func(n int64) time.Time { return time.Unix(1_700_000_000+n, 5).UTC() }
	return []index.Record{{
		Position: 1, Name: "registry.example/team/app", Tag: "v1", Current: true, Digest: "sha256:aa", SizeBytes: 2, FileCount: 3, FileTime: at(1), Mark: []byte{1, 2}, Below: []string{"sha256:bb", "sha256:cc"},
		Manifest:   archive.Ref{Digest: hash(t, "m"), Size: 4, MediaType: types.DockerManifestSchema2},
		RecipeHash: "r", Description: "d", Config: spec.Config{Cmd: []string{"sh"}, Env: []string{"A=1"}, ExposedPorts: []uint16{80}},
		MemoryBytes: 5, ReadinessPort: 65535, TTL: time.Hour,
		Pull: &index.Pull{
			Reference: "registry.example/team/app:v1", Asked: hash(t, "a"), CheckedAt: at(2), Private: true,
			Proofs: map[string]time.Time{"w/r@1": at(3), "x/s@2": at(4)},
		},
		Commit:   &index.Commit{Base: "sha256:bb", DiffID: hash(t, "l"), Layer: archive.Ref{Digest: hash(t, "c"), Size: 6}, ConfigHash: "h"},
		CacheKey: "k", Owner: "w", Users: map[sandbox.WorkspaceID]time.Time{"w": at(5), "x": at(6)},
		LostAt: at(7), CreatedAt: at(8), UpdatedAt: at(9), Packages: []recipe.Package{{Name: "bash", Version: "5"}},
	}, {
		Position: 2, Digest: "sha256:cc", Manifest: archive.Ref{Digest: hash(t, "n")}, UpdatedAt: at(10), CreatedAt: at(10),
	}}
}

func TestRowsHaveEveryField(t *testing.T) {
	path := filepath.Join(t.TempDir(), "modbox.db")
	rows := imagerows.New(storetest.Open(t, path).DB)
	want := records(t)
	for i, v := 0, reflect.ValueOf(want[0]); i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Errorf("the test has no value for the field %s", v.Type().Field(i).Name)
		}
	}
	check := func(when string) {
		t.Helper()
		got, err := imagerows.New(storetest.Open(t, path).DB).Images(t.Context())
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s (-want +got):\n%s%v", when, diff, err)
		}
	}
	if err := rows.ChangeImages(t.Context(), want, nil); err != nil {
		t.Fatal(err)
	}
	check("after the first change")
	delete(want[0].Users, "x")
	delete(want[0].Pull.Proofs, "w/r@1")
	want[0].Current = false
	if err := rows.ChangeImages(t.Context(), want[:1], nil); err != nil {
		t.Fatal(err)
	}
	check("after a replacement")
	if err := rows.ChangeImages(t.Context(), nil, []string{want[0].Key(), "unknown"}); err != nil {
		t.Fatal(err)
	}
	want = want[1:]
	check("after a removal")
}
