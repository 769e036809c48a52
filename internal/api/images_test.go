package api_test

import (
	"archive/tar"
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
)

func TestPullImage(t *testing.T) {
	s := apitest.New(t)
	a := s.Want(200, "POST", "/v1/images/pull", wire.ImagePull{Image: apitest.PullRef})
	if got := a.Header.Get("Content-Type"); got != "application/x-ndjson" {
		t.Errorf("Content-Type = %q", got)
	}
	var last wire.ImageProgress
	for sc := bufio.NewScanner(bytes.NewReader(a.Body)); sc.Scan(); {
		last = wire.ImageProgress{}
		if err := json.Unmarshal(sc.Bytes(), &last); err != nil {
			t.Fatal(err)
		}
		if last.Type == wire.PullProgress && (last.Phase != "pulling" || last.Done != 1 || last.Total != 2) {
			t.Errorf("progress = %+v", last)
		}
	}
	if last.Type != wire.PullDone || last.Image == nil || last.Image.Ref != apitest.PullRef {
		t.Errorf("the last message = %+v, want done with the image", last)
	}
	s.Want(404, "POST", "/v1/images/pull", wire.ImagePull{Image: "registry.test/none"})
	for _, bad := range []wire.ImagePull{{}, {Image: string(make([]byte, sandbox.ImageRefMax+1))}} {
		if got := string(s.Want(422, "POST", "/v1/images/pull", bad).Body); !strings.Contains(got, `"location":"image"`) {
			t.Errorf("the error %s is not about image", got)
		}
	}
}

// builtImage is an image NAME:v1 that a workspace has built.
func builtImage(t testing.TB, images *image.Store, ws sandbox.WorkspaceID, name string) spec.Image {
	t.Helper()
	var layer bytes.Buffer
	tw := tar.NewWriter(&layer)
	if err := errors.Join(tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}), tw.Close()); err != nil {
		t.Fatal(err)
	}
	base, err := images.Commit(t.Context(), image.CommitRequest{Owner: ws, CacheKey: name, Layer: &layer})
	if err != nil {
		t.Fatal(err)
	}
	img, err := images.Finish(t.Context(), image.FinishRequest{Base: base.Digest, Owner: ws, Name: name, Tag: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// home is the workspace of the server's first token.
func home(t *testing.T, s *apitest.Server) sandbox.WorkspaceID {
	t.Helper()
	ws, _, err := s.Store.Workspaces.EnsureDefaults(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return ws
}

// TestImageNames: a name of an image means the same as for a new sandbox.
func TestImageNames(t *testing.T) {
	s := apitest.New(t)
	own := builtImage(t, s.Images, home(t, s), "code-exec")
	named, err := s.Images.Finish(t.Context(), image.FinishRequest{Base: own.Digest, Owner: home(t, s), Name: "code-exec", Tag: "latest"})
	if err != nil {
		t.Fatal(err)
	}
	layer := bytes.NewReader(make([]byte, 1024)) // an empty tar
	public, err := s.Images.Commit(t.Context(), image.CommitRequest{Name: "code-exec", Layer: layer})
	if err != nil {
		t.Fatal(err)
	}
	before, err := s.Images.Commit(t.Context(), image.CommitRequest{Name: "app", Tag: "v1", Layer: bytes.NewReader(make([]byte, 1024))})
	if err != nil {
		t.Fatal(err)
	}
	app := builtImage(t, s.Images, home(t, s), "app")
	other := builtImage(t, s.Images, "another", "other")
	for ref, want := range map[string]string{
		"app:v1": string(app.ID), string(app.ID): string(app.ID), string(before.ID): string(before.ID),
		"code-exec": string(named.ID), "code-exec:latest": string(named.ID), string(named.ID): string(named.ID), "code-exec:v1": string(own.ID),
		string(public.ID): string(public.ID),
	} {
		var got wire.Image
		s.Want(200, "GET", "/v1/images/"+url.PathEscape(ref), nil).Into(t, &got)
		if got.ID != want {
			t.Errorf("the image %s is %s, want %s", ref, got.ID, want)
		}
	}
	for _, gone := range []string{string(other.ID), other.Digest, "other:v1", "other", "nothing", "registry.test/team/app"} {
		s.Want(404, "GET", "/v1/images/"+url.PathEscape(gone), nil)
	}
	s.Want(422, "GET", "/v1/images/NO%20NAME", nil)
}

func TestRemoveAndPruneImages(t *testing.T) {
	s := apitest.New(t)
	ws := home(t, s)
	first, second := builtImage(t, s.Images, ws, "team/first"), builtImage(t, s.Images, ws, "second")
	other := builtImage(t, s.Images, "another", "other")
	a := s.Want(204, "DELETE", "/v1/images/"+url.PathEscape("team/first:v1"), nil)
	if got := recordsOf(s, a.Header.Get("X-Request-Id")); len(got) != 1 || got[0].ObjectKind != "image" || got[0].ObjectID != string(first.ID) || got[0].ObjectName != "team/first:v1" {
		t.Errorf("recorded is %+v", got)
	}
	s.Want(204, "DELETE", "/v1/images/"+string(second.ID), nil)
	for _, gone := range []string{url.PathEscape("team/first:v1"), string(second.ID), string(other.ID), other.Digest, "other:v1", "nothing"} {
		s.Want(404, "DELETE", "/v1/images/"+gone, nil)
	}
	s.Want(422, "DELETE", "/v1/images/NO%20NAME", nil)

	// The second is in use.
	used := sandbox.Snapshot{ID: sandbox.NewSnapshotID(), Workspace: ws, Name: "used", Tag: "latest", CreatedAt: time.Now().UTC()}
	if err := s.Store.Snapshots.BeginSnapshot(t.Context(), used, 10, 1<<30, quota.Admission{}); err != nil {
		t.Fatal(err)
	}
	grown := sandbox.SnapshotResult{BaseDigest: second.Digest, Digest: second.Digest, CreatedAt: used.CreatedAt}
	if _, err := s.Store.Snapshots.FinishSnapshot(t.Context(), used.ID, grown, 1<<30, quota.Admission{}, sandbox.Event{}); err != nil {
		t.Fatal(err)
	}
	prune := func(body any) wire.PrunedImages {
		t.Helper()
		var got wire.PrunedImages
		a := s.Want(200, "POST", "/v1/images/prune", body)
		a.Into(t, &got)
		if got.FreedBytes < 0 || len(got.Images) > 0 && got.FreedBytes == 0 {
			t.Errorf("%d bytes were freed by %+v", got.FreedBytes, got.Images)
		}
		if r := recordsOf(s, a.Header.Get("X-Request-Id")); len(r) != 1 || r[0].Details["images"] != strconv.Itoa(len(got.Images)) {
			t.Errorf("recorded is %+v", r)
		}
		got.FreedBytes = 0
		return got
	}
	pruned := wire.PrunedImages{Images: []wire.PrunedImage{{Ref: "team/first:v1", Digest: first.Digest, SizeBytes: first.SizeBytes, WorkspaceID: string(ws)}}}
	dry := pruned
	dry.DryRun = true
	for _, tt := range []struct {
		body any
		want wire.PrunedImages
	}{
		{wire.PruneImages{DryRun: true}, dry},
		{wire.PruneImages{DryRun: true, All: true}, dry},
		{nil, pruned},
		{wire.PruneImages{All: true}, wire.PrunedImages{Images: []wire.PrunedImage{}}},
	} {
		if d := cmp.Diff(tt.want, prune(tt.body)); d != "" {
			t.Errorf("prune %+v (-want +got):\n%s", tt.body, d)
		}
	}
	if _, _, err := s.Images.Resolve(t.Context(), second.Digest); err != nil {
		t.Errorf("what a snapshot needs: %v", err)
	}
	if _, err := s.Images.Built(t.Context(), "another", "other:v1"); err != nil {
		t.Errorf("what another workspace has built: %v", err)
	}
	s.Want(422, "POST", "/v1/images/prune", map[string]any{"everything": true})
}

// TestOnlyAdministratorsRemoveForAll: what is for all workspaces is not an owner's to remove
// or to prune.
func TestOnlyAdministratorsRemoveForAll(t *testing.T) {
	m := newMatrix(t)
	owner := m.token(m.members[account.RoleOwner], auth.TokenRequest{})
	var layer bytes.Buffer
	if err := tar.NewWriter(&layer).Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Images.Commit(t.Context(), image.CommitRequest{Layer: &layer, Name: "operators"}); err != nil {
		t.Fatal(err)
	}
	for path, method := range map[string]string{"/v1/images/operators": "DELETE", "/v1/images/prune": "POST"} {
		var body any
		if method == "POST" {
			body = wire.PruneImages{All: true}
		}
		if rec := m.serve(m.Request(method, path, body), owner); rec.Code != 403 || !strings.Contains(rec.Body.String(), "administrator") {
			t.Errorf("%s %s of an owner: %d %s", method, path, rec.Code, rec.Body)
		}
		if rec := m.serve(m.Request(method, path, body), m.Token); rec.Code/100 != 2 {
			t.Errorf("%s %s of an administrator: %d %s", method, path, rec.Code, rec.Body)
		}
	}
}
