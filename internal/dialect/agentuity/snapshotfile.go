package agentuity

import (
	"cmp"
	"context"
	"mime"
	"path"
	"strings"

	"github.com/modbox/modbox/internal/sandbox"
)

// snapshotFilesMax bounds the list of a snapshot's files: a snapshot with more files gets no list.
const snapshotFilesMax = 1000

// snapshotFile is a file of a snapshot. The clients need all of its fields.
type snapshotFile struct {
	Path        string `json:"path"`
	Size        int64  `json:"size"`
	SHA256      string `json:"sha256"`
	ContentType string `json:"contentType"`
	Mode        uint32 `json:"mode"`
}

// files lists the files in the workspace of a snapshot; nil when they are too many or too
// large to be read for an answer, or too many are being read at the moment. The list is optional
// for the clients, and the snapshot's URL has the files.
func (h *snapshots) files(ctx context.Context, sn *sandbox.Snapshot) *[]snapshotFile {
	files := []snapshotFile{}
	page, err := h.svc.Snapshots().Files(ctx, caller(ctx), string(sn.ID), sandbox.SnapshotFileQuery{
		Path: workspaceDir, Recursive: true, Hash: true, Limit: snapshotFilesMax,
	})
	if sandbox.CodeOf(err) == sandbox.FileNotFound {
		return &files // the snapshot has no workspace
	}
	if err != nil || page.More {
		return nil
	}
	for _, f := range page.Files {
		if !f.Mode.IsRegular() {
			continue
		}
		if f.SHA256 == "" {
			return nil
		}
		files = append(files, snapshotFile{
			Path: strings.TrimPrefix(f.Path, workspaceDir+"/"), Size: f.Size, SHA256: f.SHA256, Mode: sandbox.ModeBits(f.Mode),
			ContentType: cmp.Or(mime.TypeByExtension(path.Ext(f.Path)), "application/octet-stream"),
		})
	}
	return &files
}
