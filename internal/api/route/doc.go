// Package route adds the routes of the handlers of /v1, and has the shapes that their requests and
// answers have in common.
//
// JSON routes are declared to huma, which validates requests and describes answers.
// Routes whose bodies are streams are plain handlers on the same mux, described by hand in the
// document.
//
// A handler is a type per noun, in a package below internal/api. It has the services that it calls
// as fields, and adds its routes itself:
//
//	// Widgets are the routes of widgets.
//	type Widgets struct{ Service *widget.Service }
//
//	// Register adds the routes.
//	func (h *Widgets) Register(m *route.Mux) {
//		route.JSON(m, huma.Operation{OperationID: "get-widget", Method: http.MethodGet, Path: "/v1/widgets/{widget}"}, h.get)
//	}
//
// The API makes the handlers in internal/api/handlers.go; the permission of each route is a line in
// internal/api/permission.go.
package route
