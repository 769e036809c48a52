package agentuity

import (
	"cmp"
	"context"
	"net/http"
	"strings"

	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/snapshot"
)

// snapshots has the handlers for snapshots.
type snapshots struct {
	*finder
	runtimes *runtimes
	svc      *lifecycle.Service
	urls     URLs
}

func (h *snapshots) register(m routes) {
	m.add("POST /sandbox/{id}/snapshot", byCode, h.create)
	m.add("GET /sandbox/snapshots", byCode, h.list)
	m.add("GET /sandbox/snapshots/lineage", byCode, h.lineage)
	m.add("GET /sandbox/snapshots/{snapshot}", byCode, h.get)
	m.add("PATCH /sandbox/snapshots/{snapshot}", byCode, h.tag)
	m.add("DELETE /sandbox/snapshots/{snapshot}", byCode, h.delete)
	// These need no token.
	m.add("GET /sandbox/snapshots/public", byCode, h.listPublic)
	m.add("GET /sandbox/snapshots/public/{snapshot}", byCode, h.getPublic)
}

// orgInfo is an organization in a snapshot.
type orgInfo struct {
	ref
	Slug string `json:"slug,omitempty"`
}

// snapshotInfo is a snapshot in the form of the dialect; in a lineage some fields are omitted.
type snapshotInfo struct {
	SnapshotID       string            `json:"snapshotId"`
	RuntimeID        string            `json:"runtimeId,omitempty"`
	Name             string            `json:"name"`
	FullName         string            `json:"fullName,omitempty"`
	Description      string            `json:"description,omitempty"`
	Message          string            `json:"message,omitempty"`
	Tag              string            `json:"tag,omitempty"`
	SizeBytes        int64             `json:"sizeBytes"`
	FileCount        int64             `json:"fileCount"`
	ParentSnapshotID string            `json:"parentSnapshotId,omitempty"`
	Public           bool              `json:"public"`
	Deleted          bool              `json:"deleted,omitempty"`
	OrgName          string            `json:"orgName,omitempty"`
	OrgSlug          string            `json:"orgSlug,omitempty"`
	Org              *orgInfo          `json:"org,omitempty"`
	User             *user             `json:"user,omitempty"`
	CreatedAt        string            `json:"createdAt"`
	UserMetadata     map[string]string `json:"userMetadata,omitempty"`
	DownloadURL      string            `json:"downloadUrl,omitempty"`
	Files            *[]snapshotFile   `json:"files,omitempty"`
}

func snapshotID(id sandbox.SnapshotID) string { return external(prefixSnapshot, id) }

// snapshotInfoOf describes a snapshot: a public one with its organization, others with their
// creator.
func snapshotInfoOf(sn *sandbox.Snapshot, runtimes []runtime) snapshotInfo {
	out := snapshotInfo{
		SnapshotID: snapshotID(sn.ID), Name: sn.Name, Tag: sn.Tag, Description: sn.Description, Message: sn.Message,
		SizeBytes: sn.SizeBytes, FileCount: sn.FileCount, Public: sn.Public, Deleted: !sn.DeletedAt.IsZero(),
		CreatedAt: timestamp(sn.CreatedAt), UserMetadata: sn.Metadata,
	}
	if sn.Parent != "" {
		out.ParentSnapshotID = snapshotID(sn.Parent)
	}
	if rt := ofImage(runtimes, sn.Image); rt != nil {
		out.RuntimeID = rt.ID
	}
	if !sn.Public {
		out.User = &user{string(sn.CreatedBy)}
		return out
	}
	o := org(sn.Workspace)
	out.FullName, out.OrgName, out.OrgSlug = sn.FullName(), o.Name, sn.WorkspaceSlug
	out.Org = &orgInfo{ref: o, Slug: sn.WorkspaceSlug}
	return out
}

func noSnapshot() error {
	return &typed{codeSnapshotNotFound, http.StatusNotFound, sandbox.Errorf(sandbox.NotFound, "there is no such snapshot")}
}

// snapshotRef converts the dialect's reference to ours; they differ in IDs.
func snapshotRef(s string) string {
	if id, ok := internal[sandbox.SnapshotID](prefixSnapshot, s); ok {
		return string(id)
	}
	return s
}

// find returns the snapshot for a reference: an ID, a name with or without tag, or only a
// tag, which means the newest snapshot with it.
func (h *snapshots) find(ctx context.Context, s string) (sandbox.Snapshot, error) {
	sn, err := h.svc.Snapshots().Get(ctx, caller(ctx), snapshotRef(s))
	if sandbox.CodeOf(err) != sandbox.NotFound {
		return sn, err
	}
	if sandbox.CheckSnapshotTag(s) != nil {
		return sn, noSnapshot()
	}
	tagged, err := h.svc.Snapshots().List(ctx, caller(ctx), sandbox.SnapshotFilter{Tag: s, Limit: 1})
	if err != nil {
		return sn, err
	}
	if len(tagged.Snapshots) == 0 {
		return sn, noSnapshot()
	}
	return tagged.Snapshots[0], nil
}

func (h *snapshots) create(w http.ResponseWriter, r *http.Request) error {
	in, err := decode[struct {
		Name        string `json:"name"`
		Description string `json:"description"`
		Tag         string `json:"tag"`
		Public      bool   `json:"public"`
	}](w, r)
	if err != nil {
		return err
	}
	sb, err := h.usable(r)
	if err != nil {
		return err
	}
	ctx := r.Context()
	sn, err := h.svc.Snapshots().Create(ctx, caller(ctx), string(sb.ID), snapshot.Request{
		Name: in.Name, Tag: in.Tag, Description: in.Description, Public: in.Public,
	})
	if err != nil {
		return known(err)
	}
	return h.answer(w, r, &sn, nil)
}

// answer answers with a snapshot, and with the URL of its files if the caller may read
// them.
func (h *snapshots) answer(w http.ResponseWriter, r *http.Request, sn *sandbox.Snapshot, files *[]snapshotFile) error {
	ctx := r.Context()
	runtimes, err := h.runtimes.available(ctx)
	if err != nil {
		return err
	}
	out := snapshotInfoOf(sn, runtimes)
	out.Files = files
	if c := caller(ctx); c.Workspace != "" && !c.ReadOnly {
		key, _, err := h.svc.Snapshots().DownloadKey(ctx, c, string(sn.ID), workspaceDir)
		if err != nil {
			return err
		}
		out.DownloadURL = h.urls.Server() + "/v1/downloads/" + key
	}
	return answer(w, out)
}

func (h *snapshots) get(w http.ResponseWriter, r *http.Request) error {
	sn, err := h.find(r.Context(), r.PathValue("snapshot"))
	if err != nil {
		return err
	}
	return h.answer(w, r, &sn, h.files(r.Context(), &sn))
}

// getPublic needs no token.
func (h *snapshots) getPublic(w http.ResponseWriter, r *http.Request) error {
	ref := snapshotRef(r.PathValue("snapshot"))
	sn, err := h.svc.Snapshots().GetPublic(r.Context(), ref)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		sn, err = publicByName(r.Context(), h.svc.Snapshots(), ref)
	}
	if err != nil {
		return err
	}
	return h.answer(w, r, &sn, nil)
}

// publicByName returns the public snapshot that a name or name:tag without a workspace means. Errors: Conflict
// when several workspaces have one, so that none takes over the name of another.
func publicByName(ctx context.Context, in *snapshot.Service, s string) (none sandbox.Snapshot, _ error) {
	ref, ok := sandbox.ParseSnapshotRef(s)
	if !ok || ref.Slug != "" {
		return none, noSnapshot()
	}
	named, err := in.ListPublic(ctx, sandbox.SnapshotFilter{Name: ref.Name, Tag: ref.Tag, Ascending: true, Limit: 2})
	switch list := named.Snapshots; {
	case err != nil:
		return none, err
	case len(list) == 0:
		return none, noSnapshot()
	case len(list) > 1:
		return none, sandbox.Errorf(sandbox.Conflict, "several workspaces have a public snapshot of this name; give the full name, such as %s or %s", list[0].FullName(), list[1].FullName())
	default:
		return list[0], nil
	}
}

func (h *snapshots) tag(w http.ResponseWriter, r *http.Request) error {
	in, err := decode[struct {
		Tag *string `json:"tag"`
	}](w, r)
	if err != nil {
		return err
	}
	sn, err := h.svc.Snapshots().Tag(r.Context(), caller(r.Context()), snapshotRef(r.PathValue("snapshot")), in.Tag)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return noSnapshot()
	}
	if err != nil {
		return err
	}
	return h.answer(w, r, &sn, nil)
}

func (h *snapshots) delete(w http.ResponseWriter, r *http.Request) error {
	err := h.svc.Snapshots().Delete(r.Context(), caller(r.Context()), snapshotRef(r.PathValue("snapshot")))
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return noSnapshot()
	}
	if err != nil {
		return err
	}
	return answerDone(w)
}

// snapshotFilter reads the requested part of a list.
func snapshotFilter(r *http.Request) (f sandbox.SnapshotFilter, err error) {
	if f.Limit, err = number(r, "limit", 50, 1, 100); err != nil {
		return f, err
	}
	if f.Offset, err = number(r, "offset", 0, 0, 1<<30); err != nil {
		return f, err
	}
	desc, err := descending(r, true)
	f.Ascending, f.Count = !desc, true
	f.Sort = sandbox.SnapshotSort(strings.ToLower(r.URL.Query().Get("sort")))
	return f, err
}

func (h *snapshots) list(w http.ResponseWriter, r *http.Request) error {
	f, err := snapshotFilter(r)
	if err != nil {
		return err
	}
	if s := r.URL.Query().Get("sandboxId"); s != "" {
		var ok bool
		if f.Sandbox, ok = internal[sandbox.ID](prefixSandbox, s); !ok {
			return noSandbox()
		}
	}
	page, err := h.svc.Snapshots().List(r.Context(), caller(r.Context()), f)
	if err != nil {
		return err
	}
	return h.answerPage(w, r, page)
}

// listPublic needs no token.
func (h *snapshots) listPublic(w http.ResponseWriter, r *http.Request) error {
	f, err := snapshotFilter(r)
	if err != nil {
		return err
	}
	page, err := h.svc.Snapshots().ListPublic(r.Context(), f)
	if err != nil {
		return err
	}
	return h.answerPage(w, r, page)
}

func (h *snapshots) answerPage(w http.ResponseWriter, r *http.Request, page sandbox.SnapshotPage) error {
	list, err := h.infos(r.Context(), page.Snapshots)
	if err != nil {
		return err
	}
	return answer(w, struct {
		Snapshots []snapshotInfo `json:"snapshots"`
		Total     int            `json:"total"`
	}{list, page.Total})
}

func (h *snapshots) infos(ctx context.Context, list []sandbox.Snapshot) ([]snapshotInfo, error) {
	runtimes, err := h.runtimes.available(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]snapshotInfo, len(list))
	for i := range list {
		out[i] = snapshotInfoOf(&list[i], runtimes)
	}
	return out, nil
}

// lineage answers with a snapshot and its ancestors; the query names it by a reference, or by name
// and tag.
func (h *snapshots) lineage(w http.ResponseWriter, r *http.Request) error {
	limit, err := number(r, "limit", 100, 1, sandbox.LineageMax)
	if err != nil {
		return err
	}
	q, ctx := r.URL.Query(), r.Context()
	of := q.Get("snapshot")
	if of == "" {
		of = q.Get("name") + ":" + cmp.Or(q.Get("tag"), sandbox.DefaultTag)
	}
	sn, err := h.find(ctx, of)
	if err != nil {
		return err
	}
	list, err := h.svc.Snapshots().Lineage(ctx, caller(ctx), string(sn.ID), page.Request{Limit: limit})
	if err != nil {
		return err
	}
	out, err := h.infos(ctx, list.Items)
	if err != nil {
		return err
	}
	return answer(w, struct {
		Lineage []snapshotInfo `json:"lineage"`
		Total   int            `json:"total"`
	}{out, len(out)})
}

// madeFrom is the snapshot of a sandbox in the form of the dialect.
type madeFrom struct {
	ID       string   `json:"id"`
	Name     string   `json:"name,omitempty"`
	Tag      string   `json:"tag,omitempty"`
	FullName string   `json:"fullName,omitempty"`
	Public   bool     `json:"public"`
	Org      *orgInfo `json:"org,omitempty"`
	User     *user    `json:"user,omitempty"`
}

// origin describes the snapshot that a sandbox was made from; nil for none. For a deleted snapshot
// only the ID is known.
func (h *sandboxes) origin(ctx context.Context, sb *sandbox.Sandbox) (*madeFrom, error) {
	if sb.Snapshot == "" {
		return nil, nil
	}
	sn, err := h.svc.Snapshots().Get(ctx, caller(ctx), string(sb.Snapshot))
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return &madeFrom{ID: snapshotID(sb.Snapshot), User: &user{string(sb.CreatedBy)}}, nil
	}
	if err != nil {
		return nil, err
	}
	i := snapshotInfoOf(&sn, nil)
	return &madeFrom{ID: i.SnapshotID, Name: i.Name, Tag: i.Tag, FullName: i.FullName, Public: i.Public, Org: i.Org, User: i.User}, nil
}
