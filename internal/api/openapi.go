package api

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/internal/api/openapi"
	"github.com/modbox/modbox/internal/api/route"
)

//go:generate go test -run TestTypeDescriptions ./openapi -update
//go:generate go test -run TestOpenAPIDocument . -update

const apiDescription = `Modbox gives programs their own isolated Linux: a sandbox with its own URL, file system and limits, that ends by itself when its time is up.

Every route needs a bearer token. Errors are RFC 9457 problems with a ` + "`code`" + ` for programs. A trailing slash on a path makes no difference. Unknown fields and parameters are errors.`

// document adds the routes of the handlers to router and returns their description.
func document(router route.Router, version string, list []handler) *huma.OpenAPI {
	m := route.NewMux(router, &huma.Info{
		Title:       "Modbox",
		Version:     version,
		Description: apiDescription,
		License:     &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"},
	}, needs)
	for _, h := range list {
		h.Register(m)
	}
	// Huma describes its own error model although all errors are problems here.
	schemas := m.Document().Components.Schemas.Map()
	delete(schemas, "ErrorModel")
	delete(schemas, "ErrorDetail")
	openapi.Describe(schemas)
	return m.Document()
}

// Document returns the OpenAPI 3.1 document of /v1 as YAML.
func Document() ([]byte, error) {
	const version = "1"
	return openapi.YAML(document(http.NewServeMux(), version, handlers(withDefaults(Config{}), Deps{})))
}
