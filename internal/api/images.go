package api

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/api/wire"
	"github.com/modbox/modbox/internal/sandbox"
)

// pullImage is POST /v1/images/pull: what happens, one JSON object a line, and a
// ping after each silence. It ends with done, or with error. Others may wait for
// the same pull, which goes on for them when this client goes away.
func (s *Server) pullImage(w http.ResponseWriter, r *http.Request) error {
	in, err := decode[wire.ImagePull](w, r, bodyMax)
	if err != nil {
		return err
	}
	latest := make(chan sandbox.ImageEvent, 1)
	type result struct {
		img sandbox.Image
		err error
	}
	ended := make(chan result, 1)
	go func() {
		img, err := s.svc.PullImage(r.Context(), caller(r.Context()), in.Image, func(e sandbox.ImageEvent) {
			select { // only the latest counts, and nobody waits for a slow client
			case <-latest:
			default:
			}
			latest <- e
		})
		ended <- result{img, err}
	}()
	var out *talker
	say := func(m wire.ImageProgress) bool {
		if out == nil {
			w.Header().Set("Content-Type", "application/x-ndjson")
			w.WriteHeader(http.StatusOK)
			out = talk(w, s.cfg.Ping)
		}
		return out.send(m) == nil
	}
	defer func() {
		if out != nil {
			out.stop()
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
				img := image(res.img)
				say(wire.ImageProgress{Type: wire.PullDone, Image: &img})
			}
			return nil
		}
	}
}

// registerImages adds the route of pulls.
func (s *Server) registerImages(a huma.API, mux router) {
	op := huma.Operation{
		OperationID: "pull-image", Method: http.MethodPost, Path: "/v1/images/pull", Tags: []string{"images"},
		Summary:     "Pull an image from a registry",
		Description: pullDescription,
		RequestBody: &huma.RequestBody{Required: true, Content: jsonContent[wire.ImagePull](a)},
		Responses: map[string]*huma.Response{"200": {Description: "The progress", Content: map[string]*huma.MediaType{
			"application/x-ndjson": {Schema: schemaOf[wire.ImageProgress](a)},
		}}},
	}
	describe(a, &op)
	mux.HandleFunc(op.Method+" "+op.Path, edge.Handler(s.pullImage).ServeHTTP)
	a.OpenAPI().AddOperation(&op)
}

const pullDescription = "Asks the registry what the reference means now and fetches what is not here; creating a sandbox does so by itself. " +
	"Answers one JSON object a line: any number of `progress`, in which `done` and `total` count bytes while the phase is `pulling`; at last `done` with the image, or `error`. " +
	"After 15 seconds of silence comes a `ping`, to be skipped like any type that is not known. What fails before there is progress has an error's status."
