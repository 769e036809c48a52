package snapshot

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// memory is a root filesystem in memory.
type memory map[string]sandbox.SnapshotFile

func (m memory) Stat(name string) (sandbox.SnapshotFile, error) {
	if f, ok := m[path.Clean(name)]; ok {
		return f, nil
	}
	return sandbox.SnapshotFile{}, sandbox.Errorf(sandbox.FileNotFound, "there is no %q", name)
}

func (m memory) Content(string) (sandbox.SnapshotFile, io.Reader, error) { panic("not read") }

func (m memory) Files(_ context.Context, q sandbox.SnapshotFileQuery) (page sandbox.SnapshotFilePage, err error) {
	for _, name := range slices.SortedFunc(maps.Keys(m), comparePaths) {
		if name == "/" || path.Dir(name) != q.Path || q.After != "" && (comparePaths(name, q.After) <= 0) {
			continue
		}
		if len(page.Files) == min(q.Limit, 2) { // pages are short, so that they are followed
			page.More = true
			break
		}
		page.Files = append(page.Files, m[name])
	}
	return page, nil
}

func (m memory) Close() {}

// isDir reports whether there is a directory.
func (m memory) isDir(name string) bool { return m[name].Mode.IsDir() }

// upper is the upper layer of an overlay.
type upper map[string]struct {
	file   sandbox.SnapshotFile
	gone   bool
	opaque bool
}

var someNames = []string{"a", "a.b", "a-", "ab", "b"}

func somebody(r *rand.Rand, name string) sandbox.SnapshotFile {
	f := sandbox.SnapshotFile{Path: name, Mode: 0o644, UID: uint32(r.IntN(2)), ModTime: time.Unix(int64(r.IntN(1000)), 0)}
	if r.IntN(3) > 0 {
		f.Mode = fs.ModeDir | 0o755
	} else {
		f.Size = r.Int64N(100)
	}
	return f
}

// someLower fills a directory.
func (m memory) some(r *rand.Rand, dir string, depth int) {
	for _, base := range someNames {
		if r.IntN(3) == 0 {
			continue
		}
		f := somebody(r, path.Join(dir, base))
		m[f.Path] = f
		if f.Mode.IsDir() && depth > 0 {
			m.some(r, f.Path, depth-1)
		}
	}
}

func (u upper) some(r *rand.Rand, dir string, depth int, tw *tar.Writer) {
	for _, i := range r.Perm(len(someNames)) {
		name := path.Join(dir, someNames[i])
		at := u[name]
		switch r.IntN(4) {
		case 0:
			continue
		case 1:
			at.gone = true
			put(tw, &tar.Header{Typeflag: tar.TypeReg, Name: dir[1:] + "/" + whiteout + someNames[i], Format: tar.FormatPAX})
			u[name] = at
			continue
		}
		at.file = somebody(r, name)
		h := &tar.Header{Name: name[1:], Mode: int64(at.file.Mode.Perm()), Uid: int(at.file.UID), ModTime: at.file.ModTime, Typeflag: tar.TypeReg, Format: tar.FormatPAX}
		if !at.file.Mode.IsDir() {
			h.PAXRecords = map[string]string{driver.LayerSize: strconv.FormatInt(at.file.Size, 10)}
			put(tw, h)
			u[name] = at
			continue
		}
		h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
		put(tw, h)
		if at.opaque = r.IntN(3) == 0; at.opaque {
			put(tw, &tar.Header{Typeflag: tar.TypeReg, Name: name[1:] + "/" + opaque, Format: tar.FormatPAX})
		}
		u[name] = at
		if depth > 0 {
			u.some(r, name, depth-1, tw)
		}
	}
}

func put(tw *tar.Writer, h *tar.Header) {
	h.Name = strings.TrimPrefix(h.Name, "/")
	if err := tw.WriteHeader(h); err != nil {
		panic(err)
	}
}

// merge returns the tree that a sandbox sees.
func merge(lower memory, u upper, dir string, hidden bool, into memory) {
	for _, base := range someNames {
		name := path.Join(dir, base)
		at, written := u[name]
		switch {
		case written && at.gone:
		case written:
			into[name] = at.file
			if at.file.Mode.IsDir() {
				merge(lower, u, name, hidden || at.opaque || !lower.isDir(name), into)
			}
		case !hidden:
			if f, ok := lower[name]; ok {
				into[name] = f
				if f.Mode.IsDir() {
					merge(lower, u, name, hidden, into)
				}
			}
		}
	}
}

// wantDiff returns the differences between two trees.
func wantDiff(lower memory, u upper, merged memory) (want []string) {
	both := maps.Clone(lower)
	maps.Copy(both, merged)
	for _, name := range slices.SortedFunc(maps.Keys(both), comparePaths) {
		before, was := lower[name]
		after, is := merged[name]
		_, written := u[name]
		switch dir := path.Dir(name); {
		case !was:
			want = append(want, line(Added, after, nil))
		case !is:
			if dir == "/" || merged.isDir(dir) {
				want = append(want, line(Removed, before, nil))
			}
		case written && (!after.Mode.IsDir() || after.Mode != before.Mode || after.UID != before.UID):
			want = append(want, line(Changed, after, &before))
		}
	}
	return want
}

// line describes a change.
func line(kind ChangeKind, f sandbox.SnapshotFile, before *sandbox.SnapshotFile) string {
	s := fmt.Sprintf("%s %s %s %d %s", kind, f.Path, f.Mode, f.Size, f.Target)
	if before != nil {
		s += fmt.Sprintf(", was %s %d", before.Mode, before.Size)
	}
	return s
}

func shown(c Change) string { return line(c.Kind, c.File, c.Before) }

// TestDiffIsTheDifference compares diffs of random layers, in parts of any length and of any directory, with the
// difference between the trees.
func TestDiffIsTheDifference(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		lower, u, merged := memory{}, upper{}, memory{}
		lower.some(r, "/", 2)
		var layer bytes.Buffer
		tw := tar.NewWriter(&layer)
		u.some(r, "/", 2, tw)
		if err := tw.Close(); err != nil {
			t.Fatal(err)
		}
		merge(lower, u, "/", false, merged)
		want := wantDiff(lower, u, merged)
		for _, limit := range []int{1, 2, 3, 5, diffMax} {
			if d := cmp.Diff(want, readDiff(t, layer.Bytes(), lower, "/", limit)); d != "" {
				t.Fatalf("seed %d, parts of %d (-want +got):\n%s", seed, limit, d)
			}
		}
		both := maps.Clone(lower)
		maps.Copy(both, merged)
		for dir := range both {
			var below []string
			for _, change := range want {
				if isWithin(strings.Fields(change)[1], dir) {
					below = append(below, change)
				}
			}
			if _, is := merged[dir]; !is {
				below = []string{line(Removed, lower[dir], nil)}
			}
			if d := cmp.Diff(below, readDiff(t, layer.Bytes(), lower, dir, 3)); d != "" {
				t.Fatalf("seed %d, %s (-want +got):\n%s", seed, dir, d)
			}
		}
	}
}

// readDiff returns a diff that was read in parts.
func readDiff(t *testing.T, layer []byte, lower memory, dir string, limit int) (got []string) {
	t.Helper()
	q := DiffQuery{Path: dir, Limit: limit}
	for range 1000 {
		n := newLayerNames(q)
		if err := n.read(bytes.NewReader(layer)); err != nil {
			t.Fatal(err)
		}
		part, err := n.compare(t.Context(), lower)
		if err != nil {
			t.Fatal(err)
		}
		if len(part.Changes) > limit {
			t.Fatalf("a part of %d has %d", limit, len(part.Changes))
		}
		for _, c := range part.Changes {
			got = append(got, shown(c))
		}
		if part.Next == "" {
			return got
		}
		q.After = part.Next
	}
	t.Fatal("the parts do not end")
	return nil
}

// TestDiffOfLinks: a further name of a file has its type and size.
func TestDiffOfLinks(t *testing.T) {
	var layer bytes.Buffer
	tw := tar.NewWriter(&layer)
	put(tw, &tar.Header{Typeflag: tar.TypeReg, Name: "z", Mode: 0o600, Format: tar.FormatPAX, PAXRecords: map[string]string{driver.LayerSize: "7"}})
	put(tw, &tar.Header{Typeflag: tar.TypeLink, Name: "a", Linkname: "z"})
	put(tw, &tar.Header{Typeflag: tar.TypeSymlink, Name: "s", Linkname: "../out"})
	put(tw, &tar.Header{Typeflag: tar.TypeLink, Name: "t", Linkname: "s"})
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	n := newLayerNames(DiffQuery{Path: "/", Limit: 10})
	if err := n.read(&layer); err != nil {
		t.Fatal(err)
	}
	part, err := n.compare(t.Context(), memory{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range part.Changes {
		got = append(got, shown(c))
	}
	want := []string{"added /a -rw------- 7 ", "added /s L--------- 0 ../out", "added /t L--------- 0 ../out", "added /z -rw------- 7 "}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("diff (-want +got):\n%s", d)
	}
}

// TestDiffKeepsFewNames: a layer with many names needs no memory for all of them.
func TestDiffKeepsFewNames(t *testing.T) {
	n := newLayerNames(DiffQuery{Path: "/", Limit: 2})
	for i := range 10_000 {
		n.add(layerName{file: sandbox.SnapshotFile{Path: fmt.Sprintf("/%06d", 99_999-i)}})
		if len(n.list) > 2*n.most {
			t.Fatalf("%d names are kept for parts of 2", len(n.list))
		}
	}
	if n.cut(); n.list[0].file.Path != "/090000" {
		t.Errorf("the first name is %s", n.list[0].file.Path)
	}
}

// TestDiffGoesOnBehindUnchangedDirectories: a part may have no changes and not be the last.
func TestDiffGoesOnBehindUnchangedDirectories(t *testing.T) {
	lower := memory{}
	var layer bytes.Buffer
	tw := tar.NewWriter(&layer)
	for i := range 20 {
		name := fmt.Sprintf("d%02d", i)
		put(tw, &tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755})
		lower["/"+name] = sandbox.SnapshotFile{Path: "/" + name, Mode: fs.ModeDir | 0o755}
	}
	put(tw, &tar.Header{Typeflag: tar.TypeReg, Name: "z", Mode: 0o600})
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	if got := readDiff(t, layer.Bytes(), lower, "/", 2); !slices.Equal(got, []string{"added /z -rw------- 0 "}) {
		t.Errorf("diff = %q", got)
	}
}

// counted counts the lists of a root filesystem.
type counted struct {
	memory
	lists *int
}

func (c counted) Files(ctx context.Context, q sandbox.SnapshotFileQuery) (sandbox.SnapshotFilePage, error) {
	*c.lists++
	return c.memory.Files(ctx, q)
}

// TestDiffReadsFewHiddenNames: directories that were all made anew are read only as far as a part needs.
func TestDiffReadsFewHiddenNames(t *testing.T) {
	lower, lists, want := memory{}, 0, []string(nil)
	var layer bytes.Buffer
	tw := tar.NewWriter(&layer)
	for i := range 40 {
		dir := fmt.Sprintf("/d%02d", i)
		lower[dir] = sandbox.SnapshotFile{Path: dir, Mode: fs.ModeDir | 0o755}
		put(tw, &tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755})
		put(tw, &tar.Header{Typeflag: tar.TypeReg, Name: dir + "/" + opaque})
		for j := range 10 {
			f := sandbox.SnapshotFile{Path: fmt.Sprintf("%s/%d", dir, j)}
			lower[f.Path] = f
			want = append(want, line(Removed, f, nil))
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, readDiff(t, layer.Bytes(), lower, "/", 3)); d != "" {
		t.Errorf("diff (-want +got):\n%s", d)
	}
	n := newLayerNames(DiffQuery{Path: "/", Limit: 10})
	if err := n.read(&layer); err != nil {
		t.Fatal(err)
	}
	if part, err := n.compare(t.Context(), counted{lower, &lists}); err != nil || len(part.Changes) != 10 || lists > 80 {
		t.Errorf("the first part has %d changes after %d lists of 2 names, %v", len(part.Changes), lists, err)
	}
}

// TestDiffBelowAnOpaqueDirectory: for a path below a directory that was made anew, the many names of the directory are
// not listed, whether the sandbox has the path or not.
func TestDiffBelowAnOpaqueDirectory(t *testing.T) {
	lower, lists := memory{"/big": {Path: "/big", Mode: fs.ModeDir | 0o755}, "/big/zzz": {Path: "/big/zzz", Mode: fs.ModeDir | 0o755}}, 0
	for i := range 2_000 {
		name := fmt.Sprintf("/big/%06d", i)
		lower[name] = sandbox.SnapshotFile{Path: name}
	}
	hidden := sandbox.SnapshotFile{Path: "/big/zzz/hidden"}
	lower[hidden.Path] = hidden
	for _, name := range []string{"", "big/zzz/", "big/zzz/new"} {
		var layer bytes.Buffer
		tw := tar.NewWriter(&layer)
		put(tw, &tar.Header{Typeflag: tar.TypeDir, Name: "big/", Mode: 0o755})
		put(tw, &tar.Header{Typeflag: tar.TypeReg, Name: "big/" + opaque})
		want := []string{line(Removed, lower["/big/zzz"], nil)}
		if name != "" {
			put(tw, &tar.Header{Typeflag: tar.TypeDir, Name: "big/zzz/", Mode: 0o755})
			want = []string{line(Removed, hidden, nil)}
		}
		if name == "big/zzz/new" {
			put(tw, &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600})
			want = append(want, "added /big/zzz/new -rw------- 0 ")
		}
		if err := tw.Close(); err != nil {
			t.Fatal(err)
		}
		n := newLayerNames(DiffQuery{Path: "/big/zzz", Limit: 10})
		if err := n.read(&layer); err != nil {
			t.Fatal(err)
		}
		lists = 0
		part, err := n.compare(t.Context(), counted{lower, &lists})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range part.Changes {
			got = append(got, shown(c))
		}
		if d := cmp.Diff(want, got); d != "" || lists > 2 {
			t.Errorf("with %q, after %d lists (-want +got):\n%s", name, lists, d)
		}
	}
}

// slow is a root filesystem whose lists do not end.
type slow struct{ memory }

func (slow) Files(ctx context.Context, _ sandbox.SnapshotFileQuery) (sandbox.SnapshotFilePage, error) {
	<-ctx.Done()
	return sandbox.SnapshotFilePage{}, ctx.Err()
}

// opens opens a root filesystem.
type opens struct {
	Layers
	root Rootfs
}

func (o opens) Open(context.Context, string) (Rootfs, error) { return o.root, nil }

// TestDiffEndsWithItsTime: a comparison ends with code timeout, and with the request.
func TestDiffEndsWithItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := sandbox.SnapshotFile{Path: "/d", Mode: fs.ModeDir | 0o755}
		s := &Service{layers: opens{root: slow{memory{"/d": root}}}}
		diff := func(ctx context.Context) error {
			n := newLayerNames(DiffQuery{Path: "/", Limit: 1})
			n.add(layerName{file: root, opaque: true})
			_, err := s.compareNames(ctx, "", n)
			return err
		}
		begin := time.Now()
		if err := diff(t.Context()); sandbox.CodeOf(err) != sandbox.Timeout || time.Since(begin) != driver.NamesTimeout {
			t.Errorf("after %s: %v", time.Since(begin), err)
		}
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		if err := diff(ctx); !errors.Is(err, context.DeadlineExceeded) || sandbox.CodeOf(err) == sandbox.Timeout {
			t.Errorf("after the request: %v", err)
		}
	})
}

// TestDiffOfLongNames: a part has a bounded number of bytes, and of targets few are remembered.
func TestDiffOfLongNames(t *testing.T) {
	var layer bytes.Buffer
	tw := tar.NewWriter(&layer)
	const files = 2200
	for i := range files {
		put(tw, &tar.Header{Typeflag: tar.TypeSymlink, Name: fmt.Sprintf("%04d%s", i, strings.Repeat("/x", 1500)), Linkname: strings.Repeat("y", 5000), Format: tar.FormatPAX})
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	n := newLayerNames(DiffQuery{Path: "/", Limit: diffMax})
	if err := n.read(bytes.NewReader(layer.Bytes())); err != nil {
		t.Fatal(err)
	}
	if n.linked != nil || n.targets > linkedTargets || n.targets == 0 {
		t.Errorf("%d bytes of targets were remembered", n.targets)
	}
	part, err := n.compare(t.Context(), memory{})
	if err != nil {
		t.Fatal(err)
	}
	if most := pageBytes/(3004+layerNameMax) + 1; len(part.Changes) > most || len(part.Changes) < most-1 || len(part.Changes[0].File.Target) != layerNameMax {
		t.Errorf("a part has %d changes, want %d", len(part.Changes), most)
	}
	if got := readDiff(t, layer.Bytes(), memory{}, "/", diffMax); len(got) != files {
		t.Errorf("the parts have %d changes", len(got))
	}
}

// TestDiffKeepsNoHeaders: of a symbolic link only its target is remembered, not the header with its long name.
func TestDiffKeepsNoHeaders(t *testing.T) {
	const links, long = 5000, 4000
	n := newLayerNames(DiffQuery{Path: "/none", Limit: 1})
	from, to := io.Pipe()
	defer from.Close()
	go func() {
		tw := tar.NewWriter(to)
		for i := range links {
			put(tw, &tar.Header{Typeflag: tar.TypeSymlink, Name: fmt.Sprintf("%04d%s", i, strings.Repeat("/x", long/2)), Linkname: "é", Format: tar.FormatPAX})
		}
		to.CloseWithError(tw.Close())
	}()
	before := heap()
	in := tar.NewReader(from)
	for h, err := in.Next(); err != io.EOF; h, err = in.Next() {
		if err != nil {
			t.Fatal(err)
		}
		if err := n.entry(h); err != nil {
			t.Fatal(err)
		}
	}
	if grown := int64(heap()) - int64(before); grown > links*long/4 {
		t.Errorf("%d bytes are kept of %d links", grown, links)
	}
	if len(n.linked) != links {
		t.Errorf("%d links are remembered, want %d", len(n.linked), links)
	}
}

// heap returns the memory in use.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
