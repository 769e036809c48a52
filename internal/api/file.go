package api

import (
	"context"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
)

// The longest path, and the longest name in a directory, as in Linux.
const (
	pathMax = 4096
	nameMax = 255
)

// PathInput names a path in a sandbox.
type PathInput struct {
	SandboxRef
	Path string `query:"path" required:"true" minLength:"1" maxLength:"4096" doc:"The path; a relative path begins at the working directory of commands, the image's."`
}

type removeInput struct {
	PathInput
	Recursive bool `query:"recursive" doc:"Remove a directory with everything in it."`
}

type listDirInput struct {
	PathInput
	PageInput
}

type mkdirInput struct {
	SandboxRef
	Body wire.Mkdir
}

type moveInput struct {
	SandboxRef
	Body wire.Move
}

func (s *Server) registerFiles(a huma.API) {
	tags := []string{"files"}
	route(a, huma.Operation{
		OperationID: "stat-file", Method: http.MethodGet, Path: "/v1/sandboxes/{sandbox}/files/stat", Tags: tags,
		Summary: "Describe a path", Description: "A last symlink is not followed.",
	}, s.statFile)
	route(a, huma.Operation{
		OperationID: "list-files", Method: http.MethodGet, Path: "/v1/sandboxes/{sandbox}/files/list", Tags: tags,
		Summary: "List a directory", Description: "Sorted by name.",
	}, s.listDir)
	route(a, huma.Operation{
		OperationID: "delete-file", Method: http.MethodDelete, Path: "/v1/sandboxes/{sandbox}/files", Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Remove a path", Description: "A file, a symlink or an empty directory; with recursive a directory and what is in it.",
	}, s.removeFile)
	route(a, huma.Operation{
		OperationID: "make-directory", Method: http.MethodPost, Path: "/v1/sandboxes/{sandbox}/files/mkdir", Tags: tags,
		Summary: "Make a directory", Description: "Answers the directory.",
	}, s.mkdir)
	route(a, huma.Operation{
		OperationID: "move-file", Method: http.MethodPost, Path: "/v1/sandboxes/{sandbox}/files/move", Tags: tags,
		Summary: "Rename a path", Description: "Answers the path at its new place.",
	}, s.moveFile)
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

func (s *Server) statFile(ctx context.Context, in *PathInput) (*body[wire.FileInfo], error) {
	if err := checkPath("path", in.Path); err != nil {
		return nil, err
	}
	info, err := s.guest.Stat(ctx, caller(ctx), in.Ref, in.Path)
	if err != nil {
		return nil, err
	}
	return reply(fileInfo(info)), nil
}

func (s *Server) listDir(ctx context.Context, in *listDirInput) (*body[wire.Page[wire.FileInfo]], error) {
	if err := checkPath("path", in.Path); err != nil {
		return nil, err
	}
	var after []byte // a name need not be UTF-8
	if _, err := page.Parse(in.Cursor, pathOrder, &after); err != nil {
		return nil, err
	}
	list, err := s.guest.ListDir(ctx, caller(ctx), in.Ref, in.Path, string(after), in.Limit)
	p := page.Page[agentapi.FileInfo]{Items: list.Entries}
	// A hostile agent might answer an impossible name, or a name that does not advance.
	if list.Truncated && len(list.Last) <= nameMax && string(list.Last) > string(after) {
		p.Next = page.Cursor(pathOrder, list.Last)
	}
	return paged(p, err, fileInfo)
}

func (s *Server) removeFile(ctx context.Context, in *removeInput) (*struct{}, error) {
	if err := checkPath("path", in.Path); err != nil {
		return nil, err
	}
	return nil, s.guest.Remove(ctx, caller(ctx), in.Ref, in.Path, in.Recursive)
}

func (s *Server) mkdir(ctx context.Context, in *mkdirInput) (*body[wire.FileInfo], error) {
	if err := checkPath("path", in.Body.Path); err != nil {
		return nil, err
	}
	mode, err := parseMode(in.Body.Mode)
	if err != nil {
		return nil, err
	}
	req := agentapi.MkdirRequest{Path: in.Body.Path, Mode: mode, Parents: in.Body.Parents, User: in.Body.User}
	if err := s.guest.Mkdir(ctx, caller(ctx), in.Ref, req); err != nil {
		return nil, err
	}
	return s.statFile(ctx, &PathInput{SandboxRef: in.SandboxRef, Path: in.Body.Path})
}

func (s *Server) moveFile(ctx context.Context, in *moveInput) (*body[wire.FileInfo], error) {
	if err := checkPath("from", in.Body.From); err != nil {
		return nil, err
	}
	if err := checkPath("to", in.Body.To); err != nil {
		return nil, err
	}
	req := agentapi.MoveRequest{From: in.Body.From, To: in.Body.To, Overwrite: in.Body.Overwrite}
	if err := s.guest.Move(ctx, caller(ctx), in.Ref, req); err != nil {
		return nil, err
	}
	return s.statFile(ctx, &PathInput{SandboxRef: in.SandboxRef, Path: in.Body.To})
}

func fileInfo(f agentapi.FileInfo) wire.FileInfo {
	return wire.FileInfo{
		Name: f.Name, Path: f.Path, Type: string(f.Type), SizeBytes: f.Size, Mode: octal(f.Mode),
		UID: f.UID, GID: f.GID, ModTime: f.ModTime, Target: f.Target,
	}
}
