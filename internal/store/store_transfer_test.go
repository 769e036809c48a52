package store_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/secret"
	"github.com/modbox/modbox/internal/store"
	"github.com/modbox/modbox/internal/store/storetest"
)

func TestTransferToPostgres(t *testing.T) {
	needPostgres(t)
	dir := t.TempDir()
	keys, err := secret.Open(filepath.Join(dir, "secret.key"), "")
	if err != nil {
		t.Fatal(err)
	}
	from, err := store.Open(t.Context(), filepath.Join(dir, "lite.db"), store.WithKeys(keys))
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	ws, _, err := from.Workspaces.EnsureDefaults(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	one := create(t, from, creation(ws, "one"))
	gone := create(t, from, creation(ws, "two"))
	end(t, from, gone.ID, gone.CreatedAt)
	if one, err = from.Sandboxes.SetBox(t.Context(), one.ID, "sha256:abc", []byte{0, 1, 255}); err != nil {
		t.Fatal(err)
	}
	record := &audit.Record{Action: "exec", ObjectID: "a\x00b"} // of a server from before NUL was replaced
	if _, err := from.Audit.ChangeAudit(t.Context(), &audit.Change{Records: []*audit.Record{record}}); err != nil {
		t.Fatal(err)
	}
	written, err := from.Audit.AuditRows(t.Context(), audit.Filter{})
	if err != nil || len(written.Items) != 1 {
		t.Fatalf("audit log: %+v, %v", written.Items, err)
	}
	to, err := store.OpenAt(t.Context(), storetest.At(t, filepath.Join(dir, "post.db")), store.WithKeys(keys))
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	done, err := to.Transfer(t.Context(), from.DB)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]int64{}
	for _, d := range done {
		rows[d.Table] = d.Rows
	}
	if rows["sandboxes"] != 2 || rows["events"] != 4 || rows["installation"] != 1 || rows["members"] != 1 || rows["sandbox_labels"] != 2 {
		t.Errorf("copied %v", rows)
	}
	for _, want := range []sandbox.ID{one.ID, gone.ID} {
		a, err := from.Sandboxes.SandboxByID(t.Context(), want)
		if err != nil {
			t.Fatal(err)
		}
		b, err := to.Sandboxes.SandboxByID(t.Context(), want)
		if d := cmp.Diff(a, b); err != nil || d != "" {
			t.Errorf("after the transfer (-SQLite +PostgreSQL): %v\n%s", err, d)
		}
	}
	a, errA := from.Installation(t.Context())
	b, errB := to.Installation(t.Context())
	if errA != nil || errB != nil || a != b {
		t.Errorf("installations %v and %v, %v, %v, want one", a, b, errA, errB)
	}
	if list, err := to.Audit.AuditRows(t.Context(), audit.Filter{Action: "exec"}); err != nil || len(list.Items) != 1 || !bytes.Equal(list.Items[0].Record, written.Items[0].Record) {
		t.Errorf("the record with NUL: %+v, %v, want its bytes", list.Items, err)
	}
	before, err := from.LastSequence(t.Context(), "events")
	if err != nil {
		t.Fatal(err)
	}
	if copied, err := to.LastSequence(t.Context(), "events"); err != nil || copied != before {
		t.Errorf("after the transfer the newest event has number %d, %v, want %d", copied, err, before)
	}
	if _, err := to.Sandboxes.CreateSandbox(t.Context(), creation(ws, "three"), quota.Admission{}); err != nil {
		t.Fatal(err)
	}
	if after, err := to.LastSequence(t.Context(), "events"); err != nil || after != before+1 {
		t.Errorf("the next event has number %d, %v, want %d", after, err, before+1)
	}
	if _, err := to.Transfer(t.Context(), from.DB); sandbox.CodeOf(err) != sandbox.Conflict || !strings.Contains(err.Error(), "start the server") {
		t.Errorf("a second transfer: %v, want code conflict and advice", err)
	}
	other, err := store.Open(t.Context(), filepath.Join(dir, "other.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := to.Transfer(t.Context(), other.DB); sandbox.CodeOf(err) != sandbox.Conflict || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("a transfer of another installation: %v, want code conflict", err)
	}
}
