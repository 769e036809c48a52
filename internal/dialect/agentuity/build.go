package agentuity

import (
	"net/http"

	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/snapshot"
)

// builds has the handlers for builds of snapshots.
type builds struct {
	runtimes  *runtimes
	snapshots *snapshots
	svc       *lifecycle.Service
}

func (h *builds) register(m routes) {
	m.add("POST /sandbox/snapshots/build", byCode, h.begin)
	m.add("PUT /sandbox/snapshots/{snapshot}/upload", byCode, h.upload)
	m.add("POST /sandbox/snapshots/{snapshot}/finalize", byCode, h.finish)
}

// begin handles the first of the three requests of a build.
func (h *builds) begin(w http.ResponseWriter, r *http.Request) error {
	in, err := decode[struct {
		Runtime     string `json:"runtime"`
		Name        string `json:"name"`
		Tag         string `json:"tag"`
		Description string `json:"description"`
		Message     string `json:"message"`
		ContentHash string `json:"contentHash"`
		Force       bool   `json:"force"`
		Public      bool   `json:"public"`
	}](w, r)
	if err != nil {
		return err
	}
	ctx := r.Context()
	rt, err := h.runtimes.choose(ctx, "", in.Runtime)
	if err != nil {
		return err
	}
	req := snapshot.AssemblyRequest{
		Request: snapshot.Request{
			Name: in.Name, Tag: in.Tag, Description: in.Description, Message: in.Message, Public: in.Public,
		},
		ContentHash: in.ContentHash, Force: in.Force, Dir: workspaceDir,
	}
	if rt != nil {
		req.Runtime = rt.image
	}
	begun, err := h.svc.Snapshots().Assemblies().Begin(ctx, caller(ctx), req)
	if err != nil {
		return err
	}
	if sn := begun.Existing; sn != nil {
		return answer(w, struct {
			Unchanged    bool   `json:"unchanged"`
			ExistingID   string `json:"existingId"`
			ExistingName string `json:"existingName"`
			ExistingTag  string `json:"existingTag,omitempty"`
		}{true, snapshotID(sn.ID), sn.Name, sn.Tag})
	}
	return answer(w, struct {
		SnapshotID string `json:"snapshotId"`
	}{snapshotID(begun.ID)})
}

// building returns the ID of the build in the request's path.
func building(r *http.Request) sandbox.SnapshotID {
	id, _ := internal[sandbox.SnapshotID](prefixSnapshot, r.PathValue("snapshot"))
	return id
}

// noBuild is noSnapshot for a build, which another server may have, as its cause says.
func noBuild(cause error) error {
	return &typed{codeSnapshotNotFound, http.StatusNotFound, sandbox.Wrap(sandbox.NotFound, cause, "there is no such snapshot")}
}

// upload receives the files of a build. Without an upload URL the client sends them here, for
// public and private snapshots.
func (h *builds) upload(w http.ResponseWriter, r *http.Request) error {
	err := h.svc.Snapshots().Assemblies().Upload(r.Context(), caller(r.Context()), building(r), r.Body)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return noBuild(err)
	}
	if err != nil {
		return err
	}
	return answer(w, struct {
		Success bool `json:"success"`
		Scanned bool `json:"scanned"`
	}{true, false})
}

// finish handles the last request of a build.
func (h *builds) finish(w http.ResponseWriter, r *http.Request) error {
	in, err := decode[struct {
		FileCount    int               `json:"fileCount"`
		Dependencies []string          `json:"dependencies"`
		Packages     []string          `json:"packages"`
		Env          map[string]string `json:"env"`
		Metadata     map[string]string `json:"metadata"`
	}](w, r)
	if err != nil {
		return err
	}
	wait, err := edge.WaitForQuota(r)
	if err != nil {
		return err
	}
	ctx, id := r.Context(), building(r)
	sn, err := h.svc.Snapshots().Assemblies().Finish(ctx, caller(ctx), id, snapshot.Contents{
		AptPackages: in.Dependencies, NpmPackages: in.Packages, Env: in.Env, Metadata: in.Metadata, WaitForQuota: wait,
		// A client that has no files sends an archive with a placeholder.
		FilesRequired: true, FilesIgnored: in.FileCount == 0,
	})
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return noBuild(err)
	}
	if err != nil {
		return err
	}
	return h.snapshots.answer(w, r, &sn, nil)
}
