package e2b

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/snapshot"
)

// snapshots makes, lists and deletes snapshots.
type snapshots struct{ base }

func (s *snapshots) routes() map[string]route {
	return map[string]route{
		"POST /sandboxes/{id}/snapshots": {account.SandboxesWrite, "create-snapshot", s.create},
		"GET /snapshots":                 {account.SandboxesRead, "", s.list},
	}
}

// snapshotID returns the dialect's id of a snapshot.
func snapshotID(id sandbox.SnapshotID) string {
	return external(prefixSnapshot, id) + ":" + defaultTag
}

// snapshot returns the snapshot that a template names by its id or name. Errors: NotFound; Invalid
// for what cannot be a name.
func (b *base) snapshot(ctx context.Context, template string) (sandbox.Snapshot, error) {
	ref := template
	if id, ok := internal[sandbox.SnapshotID](prefixSnapshot, strings.TrimSuffix(template, ":"+defaultTag)); ok {
		ref = string(id)
	}
	return b.svc.Snapshots().Get(ctx, caller(ctx), ref)
}

// snapshotInfo describes a snapshot.
type snapshotInfo struct {
	SnapshotID string   `json:"snapshotID"`
	Names      []string `json:"names"`
}

func snapshotInfoOf(sn *sandbox.Snapshot) snapshotInfo {
	info := snapshotInfo{SnapshotID: snapshotID(sn.ID), Names: []string{}}
	if sn.Tag != "" {
		info.Names = append(info.Names, sn.Name+":"+sn.Tag)
	}
	return info
}

func (s *snapshots) create(w http.ResponseWriter, r *http.Request) error {
	in, err := Decode[struct {
		Name string `json:"name"`
	}](w, r)
	if err != nil {
		return err
	}
	sb, err := s.found(r)
	if err != nil {
		return err
	}
	req := snapshot.Request{}
	req.Name, req.Tag, _ = strings.Cut(in.Name, ":")
	if in.Name != "" && req.Tag == "" {
		req.Tag = defaultTag
	}
	sn, err := s.svc.Snapshots().Create(r.Context(), caller(r.Context()), string(sb.ID), req)
	if err != nil {
		return err
	}
	return answer(w, http.StatusCreated, snapshotInfoOf(&sn))
}

func (s *snapshots) list(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	limit, err := number(r, "limit", limitMax, 1, limitMax)
	if err != nil {
		return err
	}
	offset, err := number(r, "nextToken", 0, 0, 1<<30)
	if err != nil {
		return err
	}
	f := sandbox.SnapshotFilter{Limit: limit + 1, Offset: offset}
	f.Name, f.Tag, _ = strings.Cut(q.Get("name"), ":")
	if id := q.Get("sandboxID"); id != "" {
		sb, ok := ParseSandboxID(id)
		if !ok {
			return answer(w, http.StatusOK, []snapshotInfo{})
		}
		f.Sandbox = sb
	}
	p, err := s.svc.Snapshots().List(r.Context(), caller(r.Context()), f)
	if err != nil {
		return err
	}
	out := make([]snapshotInfo, min(len(p.Snapshots), limit))
	for i := range out {
		out[i] = snapshotInfoOf(&p.Snapshots[i])
	}
	if len(p.Snapshots) > limit {
		w.Header().Set(nextHeader, strconv.Itoa(offset+limit))
	}
	return answer(w, http.StatusOK, out)
}
