package config

// MCP bounds the sessions of MCP clients.
type MCP struct {
	MaxSessions             int      `yaml:"max_sessions" doc:"Maximum number of MCP sessions over HTTP (docs/mcp.md). 0: no limit."`
	MaxSessionsPerWorkspace int      `yaml:"max_sessions_per_workspace" doc:"Maximum number of MCP sessions over HTTP in a workspace. 0: no limit."`
	MaxSessionsPerUser      int      `yaml:"max_sessions_per_user" doc:"Maximum number of MCP sessions over HTTP of a user. 0: no limit."`
	IdleTimeout             Duration `yaml:"idle_timeout" doc:"Time after which an MCP session without requests ends."`
}
