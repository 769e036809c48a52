package runcode

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/route"
)

// BodyMax bounds a body with code, which JSON makes longer.
const BodyMax = 16 << 20

const contexts, one = "/v1/sandboxes/{sandbox}/contexts", "/v1/sandboxes/{sandbox}/contexts/{context}"

var tags = []string{"code"}

// The operations of the routes, by the names of their functions.
var (
	runOperation = huma.Operation{
		OperationID: "run-code", Method: http.MethodPost, Path: "/v1/sandboxes/{sandbox}/code", Tags: tags, MaxBodyBytes: BodyMax,
		Summary:     "Run code in a context",
		Description: "Runs code in an interpreter that keeps its state between calls, and answers its output, its values in all formats that it gives them, and its error. Code that fails is a successful request. Code in the same context runs one after the other. When the client goes away the code is interrupted.",
	}
	createOperation = huma.Operation{
		OperationID: "create-context", Method: http.MethodPost, Path: contexts, Tags: tags, DefaultStatus: http.StatusCreated,
		Summary: "Make a context", Description: "Starts an interpreter with a state of its own. A sandbox has at most 32 contexts. They are part of the sandbox: a pause, a resume and a fork keep their state.",
	}
	listOperation = huma.Operation{
		OperationID: "list-contexts", Method: http.MethodGet, Path: contexts, Tags: tags, Summary: "List a sandbox's contexts", Description: "The oldest first.",
	}
	deleteOperation = huma.Operation{
		OperationID: "delete-context", Method: http.MethodDelete, Path: one, Tags: tags, DefaultStatus: http.StatusNoContent, Summary: "End a context and its interpreter",
	}
	interruptOperation = huma.Operation{
		OperationID: "interrupt-context", Method: http.MethodPost, Path: one + "/interrupt", Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Interrupt the code that runs in a context", Description: "The context keeps its state. Code that has not ended 5 seconds later loses its interpreter.",
	}
	restartOperation = huma.Operation{
		OperationID: "restart-context", Method: http.MethodPost, Path: one + "/restart", Tags: tags,
		Summary: "Start the interpreter of a context again", Description: "Its state is lost, and so is code that runs or waits in it.",
	}
)

// Register adds the routes.
func (r *Routes) Register(m *route.Mux) {
	route.JSON(m, runOperation, r.run)
	route.JSON(m, createOperation, r.create)
	route.JSON(m, listOperation, r.list)
	route.JSON(m, deleteOperation, r.delete)
	route.JSON(m, interruptOperation, r.interrupt)
	route.JSON(m, restartOperation, r.restart)
	m.Raw(huma.Operation{
		OperationID: "run-code-stream", Method: http.MethodPost, Path: "/v1/sandboxes/{sandbox}/code/stream", Tags: []string{"code"},
		Summary:     "Run code in a context and stream its output",
		Description: "Takes the body of code. Answers one JSON object a line as things happen: `started`, then `stdout`, `stderr`, `result` and `error`, at last `end`; or `failure` when how the code ended is not known. After 15 seconds of silence comes a `ping`, to be skipped like any type that is not known. When the client goes away the code is interrupted.",
		Parameters:  []*huma.Param{route.SandboxParam()},
		RequestBody: &huma.RequestBody{Required: true, Content: route.JSONContent[wire.RunCode](m)},
		Responses:   map[string]*huma.Response{"200": {Description: "The stream", Content: route.LinesContent[wire.CodeEvent](m)}},
	}, r.stream)
}
