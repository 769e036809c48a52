package route

import (
	"context"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/api/apierror"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/api/openapi"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// BodyMax bounds the JSON bodies of routes that have no bound of their own.
	BodyMax = 1 << 20
	// FilesBodyMax bounds bodies with files, which are in base64.
	FilesBodyMax = sandbox.ExecutionFilesMax/3*4 + 4*BodyMax
)

// Router is where the routes of a [Mux] are added.
type Router interface {
	// HandleFunc adds a route.
	HandleFunc(pattern string, h func(http.ResponseWriter, *http.Request))
	// ServeHTTP serves a request by the route that matches it.
	ServeHTTP(w http.ResponseWriter, r *http.Request)
}

// Mux takes the routes of /v1 from their handlers, and describes them in the OpenAPI document.
type Mux struct {
	api    huma.API
	router Router
	needs  map[string]account.Permission
}

// NewMux returns a Mux on router. It describes the API by info, and the scope of each route by the
// permission in needs.
func NewMux(router Router, info *huma.Info, needs map[string]account.Permission) *Mux {
	schemas := huma.NewMapRegistry("#/components/schemas/", schemaName)
	schemas.RegisterTypeAlias(reflect.TypeFor[wire.Base64](), reflect.TypeFor[openapi.Base64Text]())
	config := huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info:    info,
			Components: &huma.Components{
				Schemas: schemas,
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"token": {Type: "http", Scheme: "bearer", Description: "An API token, mbx_…"},
				},
			},
			Security: []map[string][]string{{"token": {}}},
		},
		Formats: map[string]huma.Format{
			"application/json": huma.DefaultJSONFormat, "json": huma.DefaultJSONFormat,
			// curl -d sends this type by default; bodies are JSON all the same.
			"application/x-www-form-urlencoded": huma.DefaultJSONFormat,
		},
		DefaultFormat:                "application/json",
		RejectUnknownQueryParameters: true,
		Transformers:                 []huma.Transformer{problems},
	}
	a := humago.New(router, config)
	a.UseMiddleware(prepare)
	return &Mux{api: a, router: router, needs: needs}
}

// Document returns the description of the routes.
func (m *Mux) Document() *huma.OpenAPI { return m.api.OpenAPI() }

// JSON adds a JSON route: h gets the decoded and validated input; its error
// is answered as a problem, and logged when it is ours.
func JSON[I, O any](m *Mux, op huma.Operation, h func(context.Context, *I) (*O, error)) {
	op.BodyReadTimeout = -1 // see timedBody
	if op.MaxBodyBytes == 0 {
		op.MaxBodyBytes = BodyMax
	}
	m.describe(&op)
	huma.Register(m.api, op, func(ctx context.Context, in *I) (*O, error) {
		edge.Decoded(ctx)
		out, err := h(ctx, in)
		if err != nil {
			return nil, edge.Problem(ctx, err)
		}
		return out, nil
	})
}

// Raw adds a route whose body or answer is a stream. The operation describes both.
func (m *Mux) Raw(op huma.Operation, h edge.Handler) {
	m.describe(&op)
	m.router.HandleFunc(op.Method+" "+op.Path, h.ServeHTTP)
	m.api.OpenAPI().AddOperation(&op)
}

// Public describes a route that needs no credentials and is served beside the others.
func (m *Mux) Public(op huma.Operation) {
	op.Security = []map[string][]string{}
	op.Responses["default"] = m.problem()
	m.api.OpenAPI().AddOperation(&op)
}

// describe adds what all routes have in common.
func (m *Mux) describe(op *huma.Operation) {
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{}
	}
	op.Responses["default"] = m.problem()
	needs := m.needs[op.Method+" "+op.Path]
	if needs == auth.Public {
		op.Security = []map[string][]string{}
		return
	}
	scopes := []string{}
	if needs.Valid() {
		scopes = append(scopes, string(needs)) // a restricted token needs it
	}
	op.Security = []map[string][]string{{"token": scopes}}
	op.Parameters = append(op.Parameters, &huma.Param{
		Name: "X-Workspace-Id", In: "header", Schema: &huma.Schema{Type: "string"},
		Description: "One of the caller's workspaces, by id or slug; the token's own when omitted.",
	})
}

// problem describes the answer that all routes have.
func (m *Mux) problem() *huma.Response {
	return &huma.Response{
		Description: "An error",
		Content: map[string]*huma.MediaType{
			apierror.MediaType: {Schema: SchemaOf[apierror.Problem](m)},
		},
	}
}

// SchemaOf returns the schema of a type, which it adds to the document.
func SchemaOf[T any](m *Mux) *huma.Schema {
	return m.api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[T](), true, "")
}

// JSONContent describes a body of JSON.
func JSONContent[T any](m *Mux) map[string]*huma.MediaType {
	return map[string]*huma.MediaType{"application/json": {Schema: SchemaOf[T](m)}}
}

// LinesContent describes a body of JSON objects, one per line.
func LinesContent[T any](m *Mux) map[string]*huma.MediaType {
	return map[string]*huma.MediaType{"application/x-ndjson": {Schema: SchemaOf[T](m)}}
}

// schemaName names the schema of a type: a page of sandboxes is SandboxPage.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	if item, ok := strings.CutPrefix(name, "Page"); ok && strings.Contains(t.Name(), "[") {
		return item + "Page"
	}
	return name
}
