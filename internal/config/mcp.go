package config

import "time"

// MCP bounds the sessions of MCP clients.
type MCP struct {
	MaxSessions             int      `yaml:"max_sessions" doc:"Maximum number of MCP sessions over HTTP (docs/mcp.md). 0: no limit."`
	MaxSessionsPerWorkspace int      `yaml:"max_sessions_per_workspace" doc:"Maximum number of MCP sessions over HTTP in a workspace. 0: no limit."`
	MaxSessionsPerUser      int      `yaml:"max_sessions_per_user" doc:"Maximum number of MCP sessions over HTTP of a user. 0: no limit."`
	IdleTimeout             Duration `yaml:"idle_timeout" doc:"Time after which an MCP session without requests ends."`
}

func (m *MCP) validate(bad func(name, format string, args ...any)) {
	within(bad, "mcp.max_sessions", m.MaxSessions, 0, 1<<20)
	within(bad, "mcp.max_sessions_per_workspace", m.MaxSessionsPerWorkspace, 0, 1<<20)
	within(bad, "mcp.max_sessions_per_user", m.MaxSessionsPerUser, 0, 1<<20)
	within(bad, "mcp.idle_timeout", m.IdleTimeout, Duration(time.Minute), Duration(24*time.Hour))
}
