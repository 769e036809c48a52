package agentuity

import (
	"github.com/modbox/modbox/internal/execution"
	"github.com/modbox/modbox/internal/sandbox"
)

// automatic returns the environment variables that every command has. They are added to each
// command and not stored with the sandbox, so that a client that reads the sandbox's environment
// sees only the variables that it set. Those take precedence.
func (h *links) automatic(sb *sandbox.Sandbox) map[string]string {
	env := map[string]string{
		"AGENTUITY_SANDBOX_ID":     sandboxID(sb.ID),
		"AGENTUITY_SANDBOX_ORG_ID": external(prefixOrg, sb.Workspace),
	}
	_, url := h.published(sb)
	for name, value := range map[string]string{
		"AGENTUITY_SANDBOX_RUNTIME":    sb.Labels[labelRuntime],
		"AGENTUITY_SANDBOX_RUNTIME_ID": sb.Labels[labelRuntimeID],
		"AGENTUITY_SANDBOX_PROJECT_ID": sb.Labels[labelProject],
		"AGENTUITY_SANDBOX_URL":        url,
	} {
		if value != "" {
			env[name] = value
		}
	}
	for name := range sb.Env {
		delete(env, name)
	}
	return env
}

// command returns the request of an execution in the workspace of a sandbox.
func (h *links) command(sb *sandbox.Sandbox, argv []string, streams streamInput) execution.Request {
	return execution.Request{
		Argv: argv, Cwd: workspaceDir, MakeCwd: true, Env: h.automatic(sb),
		StdoutOff: streams.Stdout == ignore, StderrOff: streams.Stderr == ignore,
	}
}
