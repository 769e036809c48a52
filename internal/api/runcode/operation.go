package runcode

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"
)

// BodyMax bounds a body with code, which JSON makes longer.
const BodyMax = 16 << 20

const contexts, one = "/v1/sandboxes/{sandbox}/contexts", "/v1/sandboxes/{sandbox}/contexts/{context}"

var tags = []string{"code"}

// The operations of the routes, by the names of their functions.
var (
	// RunOperation is the operation of [Routes.Run].
	RunOperation = huma.Operation{
		OperationID: "run-code", Method: http.MethodPost, Path: "/v1/sandboxes/{sandbox}/code", Tags: tags, MaxBodyBytes: BodyMax,
		Summary:     "Run code in a context",
		Description: "Runs code in an interpreter that keeps its state between calls, and answers its output, its values in all formats that it gives them, and its error. Code that fails is a successful request. Code in the same context runs one after the other. When the client goes away the code is interrupted.",
	}
	// CreateOperation is the operation of [Routes.Create].
	CreateOperation = huma.Operation{
		OperationID: "create-context", Method: http.MethodPost, Path: contexts, Tags: tags, DefaultStatus: http.StatusCreated,
		Summary: "Make a context", Description: "Starts an interpreter with a state of its own. A sandbox has at most 32 contexts. They are part of the sandbox: a pause, a resume and a fork keep their state.",
	}
	// ListOperation is the operation of [Routes.List].
	ListOperation = huma.Operation{
		OperationID: "list-contexts", Method: http.MethodGet, Path: contexts, Tags: tags, Summary: "List a sandbox's contexts", Description: "The oldest first.",
	}
	// DeleteOperation is the operation of [Routes.Delete].
	DeleteOperation = huma.Operation{
		OperationID: "delete-context", Method: http.MethodDelete, Path: one, Tags: tags, DefaultStatus: http.StatusNoContent, Summary: "End a context and its interpreter",
	}
	// InterruptOperation is the operation of [Routes.Interrupt].
	InterruptOperation = huma.Operation{
		OperationID: "interrupt-context", Method: http.MethodPost, Path: one + "/interrupt", Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Interrupt the code that runs in a context", Description: "The context keeps its state. Code that has not ended 5 seconds later loses its interpreter.",
	}
	// RestartOperation is the operation of [Routes.Restart].
	RestartOperation = huma.Operation{
		OperationID: "restart-context", Method: http.MethodPost, Path: one + "/restart", Tags: tags,
		Summary: "Start the interpreter of a context again", Description: "Its state is lost, and so is code that runs or waits in it.",
	}
)
