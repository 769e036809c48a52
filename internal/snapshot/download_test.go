package snapshot

import (
	"context"
	"encoding/base64"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// only is the records of a single snapshot.
type only struct {
	Records
	snapshot sandbox.Snapshot
}

func (o only) Snapshot(_ context.Context, id sandbox.SnapshotID) (sandbox.Snapshot, error) {
	if id != o.snapshot.ID {
		return sandbox.Snapshot{}, sandbox.Errorf(sandbox.NotFound, "no snapshot")
	}
	return o.snapshot, nil
}

func (o only) SnapshotByTag(context.Context, sandbox.WorkspaceID, string, string, string) (sandbox.Snapshot, error) {
	return sandbox.Snapshot{}, sandbox.Errorf(sandbox.NotFound, "no snapshot")
}

// TestDownloadKeyThatIsNotValid does not open the download of a snapshot.
func TestDownloadKeyThatIsNotValid(t *testing.T) {
	sn := sandbox.Snapshot{ID: sandbox.NewSnapshotID(), Workspace: sandbox.NewWorkspaceID(), Name: "n"}
	s := &Service{records: only{snapshot: sn}, signer: newSigner()}
	later := time.Now().Add(time.Hour)
	valid := s.signer.key(download{later, sn.ID, sn.Workspace, "/a b/%/c"})
	raw, err := base64.RawURLEncoding.DecodeString(valid)
	if err != nil {
		t.Fatal(err)
	}
	forged := append([]byte{}, raw...)
	forged[len(forged)-1] ^= 1 // another path
	other := newSigner()
	for name, key := range map[string]string{
		"forged": base64.RawURLEncoding.EncodeToString(forged), "empty": "", "not base64": "%", "cut": valid[:20],
		"expired":             s.signer.key(download{time.Now().Add(-time.Second), sn.ID, sn.Workspace, ""}),
		"another workspace":   s.signer.key(download{later, sn.ID, sandbox.NewWorkspaceID(), ""}),
		"another server":      other.key(download{later, sn.ID, sn.Workspace, ""}),
		"no such snapshot":    s.signer.key(download{later, sandbox.NewSnapshotID(), sn.Workspace, ""}),
		"not from any server": strings.Repeat("A", 200),
	} {
		if _, _, err := s.OpenDownload(t.Context(), key); sandbox.CodeOf(err) != sandbox.NotFound {
			t.Errorf("OpenDownload with a key (%s) = %v, want not found", name, err)
		}
	}
	if d, ok := s.signer.open(valid); !ok || d.snapshot != sn.ID || d.workspace != sn.Workspace || d.path != "/a b/%/c" {
		t.Errorf("the content of a valid key = %+v, %v", d, ok)
	}
}

// TestDownloadKeyExpires after an hour.
func TestDownloadKeyExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sn := sandbox.Snapshot{ID: sandbox.NewSnapshotID(), Workspace: sandbox.NewWorkspaceID(), Name: "n"}
		s := &Service{records: only{snapshot: sn}, signer: newSigner()}
		key, until, err := s.DownloadKey(t.Context(), sandbox.Caller{Workspace: sn.Workspace}, string(sn.ID), "/x")
		if err != nil || time.Until(until) > time.Hour {
			t.Fatalf("DownloadKey = until %v, %v", until, err)
		}
		time.Sleep(time.Until(until) - time.Second)
		if _, ok := s.signer.open(key); !ok {
			t.Error("the key is not valid a second before its end")
		}
		time.Sleep(time.Second)
		if _, ok := s.signer.open(key); ok {
			t.Error("the key is valid at its end")
		}
	})
}
