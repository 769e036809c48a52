package envd

import (
	"context"
	"io/fs"
	"net/http"
	"path"
	"strconv"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/modbox/modbox/internal/agentapi"
	pb "github.com/modbox/modbox/internal/dialect/e2b/envdpb/filesystem"
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// entriesMax and answerMax bound the entries of an answer and their bytes, and depthMax the levels of directories.
	entriesMax = 10_000
	answerMax  = 8 << 20
	depthMax   = 64
	// linksMax bounds the symlinks that are followed for one path; resolvedMax bounds the entries of a
	// list whose links are.
	linksMax    = 16
	resolvedMax = 200
)

// files are the calls on files. It implements the service filesystem.Filesystem.
type files struct {
	calls    *guest.Calls
	users    *accounts
	watchers *watchers
}

// place is a path of a request, with the visit and the users of its sandbox.
type place struct {
	*visit
	acc  account
	db   *database
	path string
}

// at returns the place of a path. Errors: Invalid for a path that cannot exist.
func (f *files) at(ctx context.Context, h http.Header, p string) (place, error) {
	v := visitOf(ctx)
	acc, db, err := f.users.user(ctx, v, basicUser(h.Get("Authorization")))
	if err != nil {
		return place{}, err
	}
	return place{visit: v, acc: acc, db: db, path: acc.resolve(p)}, nil
}

// stat describes a path, without following a link at its end.
func (f *files) stat(ctx context.Context, at *place, p string) (agentapi.FileInfo, error) {
	return f.calls.WithMetadata().Stat(ctx, at.caller, at.ref, p)
}

// target follows the link that info describes, and returns where it leads. Broken links, and links
// that lead further than linksMax, lead nowhere.
func (f *files) target(ctx context.Context, at *place, info agentapi.FileInfo) (agentapi.FileInfo, bool) {
	for range linksMax {
		if info.Type != agentapi.TypeSymlink {
			return info, true
		}
		next := info.Target
		if !path.IsAbs(next) {
			next = path.Join(path.Dir(info.Path), next)
		}
		var err error
		if info, err = f.stat(ctx, at, path.Clean(next)); err != nil {
			return info, false
		}
	}
	return info, false
}

// entry describes a file as a client sees it: a link has type and mode of the file that it leads to.
func (f *files) entry(ctx context.Context, at *place, info agentapi.FileInfo, follow bool) *pb.EntryInfo {
	e := at.db.entry(info)
	if info.Type != agentapi.TypeSymlink {
		return e
	}
	target := info.Target
	if follow {
		if to, ok := f.target(ctx, at, info); ok {
			target = to.Path
			e.Type, e.Mode, e.Size, e.Metadata = typeOf(to.Type), to.Mode&uint32(fs.ModePerm), to.Size, shownMetadata(to.Metadata)
		}
	}
	e.SymlinkTarget = &target
	return e
}

// entry describes a file by itself.
func (db *database) entry(info agentapi.FileInfo) *pb.EntryInfo {
	name := func(names map[uint32]string, id uint32) string {
		if n, ok := names[id]; ok {
			return n
		}
		return strconv.FormatUint(uint64(id), 10)
	}
	return &pb.EntryInfo{
		Name: path.Base(info.Path), Type: typeOf(info.Type), Path: info.Path, Size: info.Size, Mode: info.Mode & uint32(fs.ModePerm),
		Permissions: modeOf(info).String(), Owner: name(db.owners, info.UID), Group: name(db.groups, info.GID), ModifiedTime: timestamppb.New(info.ModTime),
		Metadata: shownMetadata(info.Metadata),
	}
}

func typeOf(t agentapi.FileType) pb.FileType {
	switch t {
	case agentapi.TypeFile:
		return pb.FileType_FILE_TYPE_FILE
	case agentapi.TypeDir:
		return pb.FileType_FILE_TYPE_DIRECTORY
	case agentapi.TypeSymlink:
		return pb.FileType_FILE_TYPE_SYMLINK
	}
	return pb.FileType_FILE_TYPE_UNSPECIFIED
}

// modeOf returns the mode of a file in Go's form.
func modeOf(info agentapi.FileInfo) fs.FileMode {
	mode := fs.FileMode(info.Mode) & fs.ModePerm
	for bit, m := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if info.Mode&bit != 0 {
			mode |= m
		}
	}
	switch info.Type {
	case agentapi.TypeDir:
		mode |= fs.ModeDir
	case agentapi.TypeSymlink:
		mode |= fs.ModeSymlink
	case agentapi.TypeOther:
		mode |= fs.ModeIrregular
	}
	return mode
}

// Stat implements the service.
func (f *files) Stat(ctx context.Context, req *connect.Request[pb.StatRequest]) (*connect.Response[pb.StatResponse], error) {
	at, err := f.at(ctx, req.Header(), req.Msg.GetPath())
	if err != nil {
		return nil, public(ctx, err)
	}
	info, err := f.stat(ctx, &at, at.path)
	if err != nil {
		return nil, public(ctx, err)
	}
	return connect.NewResponse(&pb.StatResponse{Entry: f.entry(ctx, &at, info, true)}), nil
}

// MakeDir implements the service.
func (f *files) MakeDir(ctx context.Context, req *connect.Request[pb.MakeDirRequest]) (*connect.Response[pb.MakeDirResponse], error) {
	at, err := f.at(ctx, req.Header(), req.Msg.GetPath())
	if err != nil {
		return nil, public(ctx, err)
	}
	if info, err := f.stat(ctx, &at, at.path); err == nil {
		if info, _ = f.target(ctx, &at, info); info.Type == agentapi.TypeDir {
			return nil, public(ctx, sandbox.Errorf(sandbox.Exists, "directory already exists: %s", sandbox.Excerpt(at.path)))
		}
		return nil, public(ctx, sandbox.InvalidField("", "path already exists but it is not a directory: %s", sandbox.Excerpt(at.path)))
	}
	info, err := f.makeDir(ctx, &at, at.path)
	if err != nil {
		return nil, public(ctx, err)
	}
	return connect.NewResponse(&pb.MakeDirResponse{Entry: f.entry(ctx, &at, info, true)}), nil
}

// makeDir makes a directory with its parents, and describes it.
func (f *files) makeDir(ctx context.Context, at *place, p string) (agentapi.FileInfo, error) {
	if err := f.calls.Mkdir(ctx, at.caller, at.ref, agentapi.MkdirRequest{Path: p, Parents: true, User: at.acc.name}); err != nil {
		return agentapi.FileInfo{}, err
	}
	return f.stat(ctx, at, p)
}

// Move implements the service.
func (f *files) Move(ctx context.Context, req *connect.Request[pb.MoveRequest]) (*connect.Response[pb.MoveResponse], error) {
	at, err := f.at(ctx, req.Header(), req.Msg.GetSource())
	if err != nil {
		return nil, public(ctx, err)
	}
	to := at.acc.resolve(req.Msg.GetDestination())
	if _, err = f.stat(ctx, &at, at.path); err == nil {
		_, err = f.makeDir(ctx, &at, path.Dir(to))
	}
	if err == nil {
		err = f.calls.Move(ctx, at.caller, at.ref, agentapi.MoveRequest{From: at.path, To: to, Overwrite: true})
	}
	if err != nil {
		return nil, public(ctx, err)
	}
	info, err := f.stat(ctx, &at, to)
	if err != nil {
		return nil, public(ctx, err)
	}
	return connect.NewResponse(&pb.MoveResponse{Entry: f.entry(ctx, &at, info, true)}), nil
}

// Remove implements the service.
func (f *files) Remove(ctx context.Context, req *connect.Request[pb.RemoveRequest]) (*connect.Response[pb.RemoveResponse], error) {
	at, err := f.at(ctx, req.Header(), req.Msg.GetPath())
	if err == nil {
		err = f.calls.Remove(ctx, at.caller, at.ref, at.path, true)
	}
	if err != nil && sandbox.CodeOf(err) != sandbox.FileNotFound {
		return nil, public(ctx, err)
	}
	return connect.NewResponse(&pb.RemoveResponse{}), nil
}

// ListDir implements the service.
func (f *files) ListDir(ctx context.Context, req *connect.Request[pb.ListDirRequest]) (*connect.Response[pb.ListDirResponse], error) {
	at, err := f.at(ctx, req.Header(), req.Msg.GetPath())
	if err == nil {
		err = f.directory(ctx, &at, at.path)
	}
	var l listing
	if err == nil {
		depth := int(min(max(req.Msg.GetDepth(), 1), depthMax))
		err = f.walk(ctx, &at, at.path, depth, &l)
	}
	if err != nil {
		return nil, public(ctx, err)
	}
	return connect.NewResponse(&pb.ListDirResponse{Entries: l.entries}), nil
}

// directory returns an error unless a path is a directory, or a link to one.
func (f *files) directory(ctx context.Context, at *place, p string) error {
	info, err := f.stat(ctx, at, p)
	if err != nil {
		return err
	}
	if to, ok := f.target(ctx, at, info); !ok || to.Type != agentapi.TypeDir {
		return sandbox.InvalidField("", "path is not a directory: %s", sandbox.Excerpt(p))
	}
	return nil
}

// listing has the entries of an answer, and their bytes.
type listing struct {
	entries []*pb.EntryInfo
	size    int
}

// walk adds the entries below a directory, in the order of a walk. Errors: TooLarge.
func (f *files) walk(ctx context.Context, at *place, dir string, depth int, l *listing) error {
	for info, err := range f.calls.WithMetadata().Entries(ctx, at.caller, at.ref, dir) {
		if err != nil {
			return err
		}
		if len(l.entries) >= entriesMax {
			return sandbox.Errorf(sandbox.TooLarge, "%s has more than %d entries; list a part of it", sandbox.Excerpt(at.path), entriesMax)
		}
		info.Path = path.Join(dir, info.Name)
		e := f.entry(ctx, at, info, len(l.entries) < resolvedMax)
		if l.size += proto.Size(e); l.size > answerMax {
			return sandbox.Errorf(sandbox.TooLarge, "the entries of %s have more than %s; list a part of it", sandbox.Excerpt(at.path), sandbox.ShowBytes(answerMax))
		}
		l.entries = append(l.entries, e)
		if info.Type == agentapi.TypeDir && depth > 1 {
			err := f.walk(ctx, at, info.Path, depth-1, l)
			if err != nil && sandbox.CodeOf(err) != sandbox.FileNotFound { // it was removed meanwhile
				return err
			}
		}
	}
	return nil
}
