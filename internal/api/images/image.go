package images

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/api/quantity"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/catalogue"
	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/prepare"
	"github.com/modbox/modbox/internal/sandbox"
)

// Images are the routes of the images on the server's disk.
type Images struct {
	Catalogue *catalogue.Catalogue
	Store     *image.Store
	Prepare   *prepare.Service
	// Ping is the longest silence of a stream.
	Ping time.Duration
}

// Register adds the routes.
func (h *Images) Register(m *route.Mux) {
	m.Raw(huma.Operation{
		OperationID: "pull-image", Method: http.MethodPost, Path: "/v1/images/pull", Tags: []string{"images"},
		Summary:     "Pull an image from a registry",
		Description: pullDescription,
		RequestBody: &huma.RequestBody{Required: true, Content: route.JSONContent[wire.ImagePull](m)},
		Responses:   map[string]*huma.Response{"200": {Description: "The progress", Content: route.LinesContent[wire.ImageProgress](m)}},
	}, h.pull)
	route.JSON(m, huma.Operation{
		OperationID: "list-images", Method: http.MethodGet, Path: "/v1/images", Tags: []string{"images"},
		Summary: "List images", Description: "The images that sandboxes can be made from: the built-in images, the default one first, and then the others, by name.",
	}, h.list)
	route.JSON(m, huma.Operation{
		OperationID: "get-image", Method: http.MethodGet, Path: "/v1/images/{image}", Tags: []string{"images"},
		Summary: "Look at an image", Description: "One of list-images, with its layers.",
	}, h.get)
	route.JSON(m, huma.Operation{
		OperationID: "delete-image", Method: http.MethodDelete, Path: "/v1/images/{image}", Tags: []string{"images"}, DefaultStatus: http.StatusNoContent,
		Summary: "Remove an image", Description: removeDescription,
	}, h.remove)
	route.JSON(m, huma.Operation{
		OperationID: "prune-images", Method: http.MethodPost, Path: "/v1/images/prune", Tags: []string{"images"},
		Summary: "Free the disk of images that nothing uses", Description: pruneDescription,
	}, h.prune)
}

// pull is POST /v1/images/pull: what happens, one JSON object a line, and a
// ping after each silence. It ends with done, or with error. Others may wait for
// the same pull, which goes on for them when this client goes away.
func (h *Images) pull(w http.ResponseWriter, r *http.Request) error {
	in, err := route.Decode[wire.ImagePull](w, r, route.BodyMax)
	if err != nil {
		return err
	}
	return tellImage(w, r, h.Ping, func(ctx context.Context, progress func(phase.Event)) (spec.Image, error) {
		return h.Prepare.Pull(ctx, route.Caller(ctx), in.Image, progress)
	})
}

// tellImage streams the progress of work, which must not wait, with a ping after each silence of that length.
func tellImage(w http.ResponseWriter, r *http.Request, ping time.Duration, work func(context.Context, func(phase.Event)) (spec.Image, error)) error {
	latest := make(chan phase.Event, 1)
	type result struct {
		img spec.Image
		err error
	}
	ended := make(chan result, 1)
	go func() {
		img, err := work(r.Context(), func(e phase.Event) {
			select { // only the latest counts, and nobody waits for a slow client
			case <-latest:
			default:
			}
			latest <- e
		})
		ended <- result{img, err}
	}()
	var out *edge.Talker
	say := func(m wire.ImageProgress) bool {
		if out == nil {
			w.Header().Set("Content-Type", "application/x-ndjson")
			w.WriteHeader(http.StatusOK)
			out = edge.Talk(w, ping)
		}
		return out.Send(m) == nil
	}
	defer func() {
		if out != nil {
			out.Stop()
		}
	}()
	for {
		select {
		case e := <-latest:
			if !say(wire.ImageProgress{Type: wire.PullProgress, Phase: string(e.Phase), Done: e.Done, Total: e.Total, Message: e.Message}) {
				return nil
			}
		case res := <-ended:
			switch {
			case res.err != nil && out == nil:
				return res.err // with its status
			case res.err != nil:
				p := edge.Problem(r.Context(), res.err)
				say(wire.ImageProgress{Type: wire.StreamError, Code: string(p.Code), Message: p.Detail})
			default:
				img := shownImage(res.img)
				say(wire.ImageProgress{Type: wire.PullDone, Image: &img})
			}
			return nil
		}
	}
}

// remover is for whom images are removed.
func remover(ctx context.Context) image.Remover {
	id, _ := auth.FromContext(ctx)
	return image.Remover{Workspace: id.Workspace, Administrator: id.May(account.Administer)}
}

type imageInput struct {
	Image string `path:"image" doc:"The image's id, or a reference with its slashes escaped: ghcr.io%2Forg%2Fapp:v1."`
}

// remove is DELETE /v1/images/{image}.
func (h *Images) remove(ctx context.Context, in *imageInput) (*struct{}, error) {
	img, err := h.Store.Discard(ctx, remover(ctx), in.Image)
	if err != nil {
		return nil, err
	}
	audit.FromContext(ctx).Object("image", string(img.ID), img.Ref())
	return nil, nil
}

type pruneImagesInput struct {
	Body *wire.PruneImages `required:"false"`
}

// prune is POST /v1/images/prune.
func (h *Images) prune(ctx context.Context, in *pruneImagesInput) (*route.Body[wire.PrunedImages], error) {
	who := remover(ctx)
	req := image.PruneRequest{Workspace: who.Workspace}
	if in.Body != nil {
		req.All, req.DryRun = in.Body.All, in.Body.DryRun
	}
	if req.All && !who.Administrator {
		return nil, sandbox.Errorf(sandbox.Forbidden, "only an administrator of the installation may prune the images of all workspaces; leave out all")
	}
	done, err := h.Store.Removal().PruneFor(ctx, req)
	if err != nil {
		return nil, err
	}
	e := audit.FromContext(ctx)
	e.Detail("all", strconv.FormatBool(req.All))
	e.Detail("dry_run", strconv.FormatBool(req.DryRun))
	e.Detail("images", strconv.Itoa(len(done.Images)))
	e.Detail("freed_bytes", strconv.FormatInt(done.FreedBytes, 10))
	out := wire.PrunedImages{Images: make([]wire.PrunedImage, 0, len(done.Images)), FreedBytes: done.FreedBytes, DryRun: req.DryRun}
	for _, img := range done.Images {
		out.Images = append(out.Images, wire.PrunedImage{Ref: img.Ref, Digest: img.Digest, SizeBytes: img.SizeBytes, WorkspaceID: string(img.Workspace)})
	}
	return route.Reply(out), nil
}

func (h *Images) list(ctx context.Context, in *route.PageInput) (*route.Body[wire.Page[wire.Image]], error) {
	images, err := h.Catalogue.Images(ctx, route.Caller(ctx).Workspace)
	return route.PagedOf(*in, images, err, page.Order[spec.Image]{Name: "images", Key: func(i spec.Image) string {
		return rank(!i.Builtin) + rank(!i.IsDefault) + i.Ref() + " " + string(i.ID)
	}}, shownImage)
}

// get is GET /v1/images/{image}.
func (h *Images) get(ctx context.Context, in *imageInput) (*route.Body[wire.Image], error) {
	ws := route.Caller(ctx).Workspace
	images, err := h.Store.List(ctx)
	if err != nil {
		return nil, err
	}
	images = slices.DeleteFunc(images, func(i spec.Image) bool { return !i.VisibleTo(ws) })
	img, err := h.named(ctx, ws, in.Image, images)
	if err != nil {
		return nil, err
	}
	layers, base, err := h.Store.Layers(img, images)
	if err != nil {
		return nil, err
	}
	out := shownImage(img)
	if base != nil {
		out.Base = base.Ref()
	}
	for _, l := range layers {
		out.Layers = append(out.Layers, wire.ImageLayer{Digest: l.Digest, SizeBytes: l.SizeBytes, CreatedBy: l.CreatedBy, CreatedAt: route.Optional(l.CreatedAt), Base: l.Base})
	}
	return route.Reply(out), nil
}

// named returns the image of a list that an id or a reference means to a workspace, as for a new sandbox: an image that
// the workspace has built comes first.
func (h *Images) named(ctx context.Context, ws sandbox.WorkspaceID, ref string, images []spec.Image) (spec.Image, error) {
	for _, i := range images {
		if string(i.ID) == ref {
			return i, nil
		}
	}
	means, err := h.Store.Built(ctx, ws, ref)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		means, err = h.Store.Lookup(ctx, ref)
	}
	if err != nil && sandbox.CodeOf(err) != sandbox.NotFound {
		return spec.Image{}, err
	}
	for _, same := range []func(spec.Image) bool{
		func(i spec.Image) bool { return err == nil && i.ID == means.ID },
		func(i spec.Image) bool { return i.Ref() == ref },
	} {
		if i := slices.IndexFunc(images, same); i >= 0 {
			return images[i], nil
		}
	}
	return spec.Image{}, sandbox.Errorf(sandbox.NotFound, "the workspace has no image %.100q; GET /v1/images lists its images", ref)
}

// rank is the beginning of a sort key: items for which later holds come last.
func rank(later bool) string {
	if later {
		return "1"
	}
	return "0"
}

func shownImage(i spec.Image) wire.Image {
	return wire.Image{
		ID: string(i.ID), Name: i.Name, Tag: i.Tag, Ref: i.Ref(), Digest: i.Digest, Description: i.Description,
		Builtin: i.Builtin, IsDefault: i.IsDefault, SizeBytes: i.SizeBytes, Memory: quantity.Bytes(i.MemoryBytes),
		ReadinessPort: int(i.ReadinessPort), TTLSeconds: int64(i.TTL / time.Second), CreatedAt: i.CreatedAt, UpdatedAt: i.UpdatedAt,
	}
}

const removeDescription = "One that the workspace has built, or has by signing in to a registry, which others who have it keep. " +
	"One that is for all workspaces, such as a built-in or publicly pulled one, only an administrator of the installation may remove. " +
	"It is the name that goes: sandboxes and snapshots that were made from it go on, and its files stay until nothing needs them and they are pruned."

const pruneDescription = "Images of the workspace that were removed or replaced, images that were built without a name over an hour ago, and cached layers of builds that were not used within ten minutes. " +
	"With `all`, which is for administrators of the installation, of all workspaces, and also pulled images that have a name but were not used within ten minutes and are in no catalogue. " +
	"Images that a live sandbox, a checkpoint or a snapshot needs stay, and so do built and imported images with a name."

const pullDescription = "Asks the registry what the reference means now and fetches what is not here; creating a sandbox does so by itself. " +
	"Answers one JSON object a line: any number of `progress`, in which `done` and `total` count bytes while the phase is `pulling`; at last `done` with the image, or `error`. " +
	"After 15 seconds of silence comes a `ping`; skip it like any unknown type. A failure before the first object has an error's status."
