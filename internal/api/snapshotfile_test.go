package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/apitest"
)

func TestSnapshotFileRoutes(t *testing.T) {
	s := apitest.New(t)
	running(t, s, "s")
	s.Want(201, "POST", "/v1/sandboxes/s/snapshots", map[string]any{"name": "n"})
	var list wire.Page[wire.SnapshotFile]
	s.Want(200, "GET", "/v1/snapshots/n/files?path=/srv&recursive=true&sha256=true&limit=1", nil).Into(t, &list)
	want := []wire.SnapshotFile{{Path: "/srv/file", Type: "file", SizeBytes: 4, Mode: "0640", ModTime: time.Unix(1e9, 0).UTC(), SHA256: strings.Repeat("0", 64)}}
	got := list.Items
	got[0].ModTime = got[0].ModTime.UTC()
	if d := cmp.Diff(want, got); d != "" || list.NextCursor == nil {
		t.Fatalf("files (-want +got):\n%s, next cursor %v", d, list.NextCursor)
	}
	next := "/v1/snapshots/n/files?cursor=" + *list.NextCursor
	list = wire.Page[wire.SnapshotFile]{}
	s.Want(200, "GET", next, nil).Into(t, &list)
	if list.NextCursor != nil {
		t.Errorf("the last page has the cursor %q", *list.NextCursor)
	}
	for query, want := range map[string]string{"?path=/srv": "/srv true", "?path=/srv&format=tar": "/srv false", "": " true"} {
		a := s.Want(200, "GET", "/v1/snapshots/n/archive"+query, nil)
		if string(a.Body) != want || !strings.HasPrefix(a.Header.Get("Content-Disposition"), "attachment; filename=snapshot.tar") {
			t.Errorf("archive%s = %q, %v", query, a.Body, a.Header)
		}
	}
	var d wire.SnapshotDownload
	s.Want(200, "POST", "/v1/snapshots/n/download?path=/srv", nil).Into(t, &d)
	if !d.ExpiresAt.After(time.Now()) {
		t.Errorf("download until %v", d.ExpiresAt)
	}
	r := s.Request("GET", d.URL, nil)
	r.Header.Del("Authorization")
	if a := s.Send(r); a.Status != 200 || string(a.Body) != "/srv true" || a.Header.Get("Content-Type") != "application/gzip" {
		t.Errorf("download without a token = %d %q", a.Status, a.Body)
	}
	for path, status := range map[string]int{
		"/v1/snapshots/none/files": 404, "/v1/snapshots/none/archive": 404, "/v1/snapshots/n/archive?path=/none": 404, "/v1/downloads/x": 404,
		"/v1/snapshots/n/files?cursor=%25": 422, "/v1/snapshots/n/files?limit=1001": 422, "/v1/snapshots/n/files?limit=x": 422,
		"/v1/snapshots/n/archive?format=zip": 422, "/v1/snapshots/n/files?path=" + strings.Repeat("x", 1025): 422,
	} {
		problem(t, s.Want(status, "GET", path, nil))
	}
	problem(t, s.Want(404, "POST", "/v1/snapshots/none/download", nil))
}
