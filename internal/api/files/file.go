package files

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
)

// Files are the routes of the files in a sandbox.
type Files struct {
	Guest *guest.Calls
	// Ping is the longest silence of a watch.
	Ping time.Duration
}

// The longest path, and the longest name in a directory, as in Linux.
const (
	pathMax = 4096
	nameMax = 255
)

// pathOrder is the order of lists of files.
const pathOrder = "path"

// PathInput names a path in a sandbox.
type PathInput struct {
	route.SandboxRef
	Path string `query:"path" required:"true" minLength:"1" maxLength:"4096" doc:"The path; a relative path begins at the working directory of commands, the image's."`
}

type removeInput struct {
	PathInput
	Recursive bool `query:"recursive" doc:"Remove a directory with everything in it."`
}

type listDirInput struct {
	PathInput
	route.PageInput
}

type mkdirInput struct {
	route.SandboxRef
	Body wire.Mkdir
}

type moveInput struct {
	route.SandboxRef
	Body wire.Move
}

// Register adds the routes.
func (h *Files) Register(m *route.Mux) {
	tags := []string{"files"}
	route.JSON(m, huma.Operation{
		OperationID: "stat-file", Method: http.MethodGet, Path: "/v1/sandboxes/{sandbox}/files/stat", Tags: tags,
		Summary: "Describe a path", Description: "A last symlink is not followed.",
	}, h.statFile)
	route.JSON(m, huma.Operation{
		OperationID: "list-files", Method: http.MethodGet, Path: "/v1/sandboxes/{sandbox}/files/list", Tags: tags,
		Summary: "List a directory", Description: "Sorted by name.",
	}, h.listDir)
	route.JSON(m, huma.Operation{
		OperationID: "delete-file", Method: http.MethodDelete, Path: "/v1/sandboxes/{sandbox}/files", Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Remove a path", Description: "A file, a symlink or an empty directory; with recursive a directory and what is in it.",
	}, h.removeFile)
	route.JSON(m, huma.Operation{
		OperationID: "make-directory", Method: http.MethodPost, Path: "/v1/sandboxes/{sandbox}/files/mkdir", Tags: tags,
		Summary: "Make a directory", Description: "Answers the directory.",
	}, h.mkdir)
	route.JSON(m, huma.Operation{
		OperationID: "move-file", Method: http.MethodPost, Path: "/v1/sandboxes/{sandbox}/files/move", Tags: tags,
		Summary: "Rename a path", Description: "Answers the path at its new place.",
	}, h.moveFile)
	h.registerBatch(m)
	h.registerContent(m)
	h.registerWatch(m)
}

// checkPath refuses what no path can be; the agent checks the rest where the path means something.
func checkPath(field, path string) error {
	switch {
	case path == "":
		return sandbox.InvalidField(field, "is missing")
	case len(path) > pathMax:
		return sandbox.InvalidField(field, "has %d bytes, the maximum is %d", len(path), pathMax)
	case strings.ContainsRune(path, 0):
		return sandbox.InvalidField(field, "must not hold NUL characters")
	}
	return nil
}

func (h *Files) statFile(ctx context.Context, in *PathInput) (*route.Body[wire.FileInfo], error) {
	if err := checkPath("path", in.Path); err != nil {
		return nil, err
	}
	info, err := h.Guest.WithMetadata().Stat(ctx, route.Caller(ctx), in.Ref, in.Path)
	if err != nil {
		return nil, err
	}
	return route.Reply(fileInfo(info)), nil
}

func (h *Files) listDir(ctx context.Context, in *listDirInput) (*route.Body[wire.Page[wire.FileInfo]], error) {
	if err := checkPath("path", in.Path); err != nil {
		return nil, err
	}
	var after []byte // a name need not be UTF-8
	if _, err := page.Parse(in.Cursor, pathOrder, &after); err != nil {
		return nil, err
	}
	list, err := h.Guest.WithMetadata().ListDir(ctx, route.Caller(ctx), in.Ref, in.Path, string(after), in.Limit)
	p := page.Page[agentapi.FileInfo]{Items: list.Entries}
	// A hostile agent might answer an impossible name, or a name that does not advance.
	if list.Truncated && len(list.Last) <= nameMax && string(list.Last) > string(after) {
		p.Next = page.Cursor(pathOrder, list.Last)
	}
	return route.Paged(p, err, fileInfo)
}

func (h *Files) removeFile(ctx context.Context, in *removeInput) (*struct{}, error) {
	if err := checkPath("path", in.Path); err != nil {
		return nil, err
	}
	return nil, h.Guest.Remove(ctx, route.Caller(ctx), in.Ref, in.Path, in.Recursive)
}

func (h *Files) mkdir(ctx context.Context, in *mkdirInput) (*route.Body[wire.FileInfo], error) {
	if err := checkPath("path", in.Body.Path); err != nil {
		return nil, err
	}
	mode, err := route.ParseMode(in.Body.Mode)
	if err != nil {
		return nil, err
	}
	req := agentapi.MkdirRequest{Path: in.Body.Path, Mode: mode, Parents: in.Body.Parents, User: in.Body.User}
	if err := h.Guest.Mkdir(ctx, route.Caller(ctx), in.Ref, req); err != nil {
		return nil, err
	}
	return h.statFile(ctx, &PathInput{SandboxRef: in.SandboxRef, Path: in.Body.Path})
}

func (h *Files) moveFile(ctx context.Context, in *moveInput) (*route.Body[wire.FileInfo], error) {
	if err := checkPath("from", in.Body.From); err != nil {
		return nil, err
	}
	if err := checkPath("to", in.Body.To); err != nil {
		return nil, err
	}
	req := agentapi.MoveRequest{From: in.Body.From, To: in.Body.To, Overwrite: in.Body.Overwrite}
	if err := h.Guest.Move(ctx, route.Caller(ctx), in.Ref, req); err != nil {
		return nil, err
	}
	return h.statFile(ctx, &PathInput{SandboxRef: in.SandboxRef, Path: in.Body.To})
}

func fileInfo(f agentapi.FileInfo) wire.FileInfo {
	return wire.FileInfo{
		Name: f.Name, Path: f.Path, Type: string(f.Type), SizeBytes: f.Size, Mode: route.Octal(f.Mode),
		UID: f.UID, GID: f.GID, ModTime: f.ModTime, Target: f.Target, Metadata: f.Metadata,
	}
}
