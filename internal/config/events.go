package config

// Events bounds the streams of events.
type Events struct {
	MaxStreams             int `yaml:"max_streams" doc:"Maximum number of open streams of events (docs/events.md). 0: no limit."`
	MaxStreamsPerWorkspace int `yaml:"max_streams_per_workspace" doc:"Maximum number of open streams of events in a workspace. 0: no limit."`
	MaxStreamsPerUser      int `yaml:"max_streams_per_user" doc:"Maximum number of open streams of events of a user, in all workspaces. 0: no limit."`
}

// Webhooks bounds webhooks, and what they may reach.
type Webhooks struct {
	MaxPerWorkspace int      `yaml:"max_per_workspace" doc:"Maximum number of webhooks of a workspace (docs/webhooks.md). 0: none."`
	AllowCIDRs      Prefixes `yaml:"allow_cidrs" doc:"Closed address ranges to which webhooks may be sent, separated by commas: 10.1.0.0/16 for receivers in your own network. This opens the whole range for every workspace, including the server's own addresses, and permits http to it. Link-local addresses, where clouds have their metadata, are never open."`
}

func (e *Events) validate(bad func(name, format string, args ...any)) {
	within(bad, "events.max_streams", e.MaxStreams, 0, 1<<20)
	within(bad, "events.max_streams_per_workspace", e.MaxStreamsPerWorkspace, 0, 1<<20)
	within(bad, "events.max_streams_per_user", e.MaxStreamsPerUser, 0, 1<<20)
}

func (w *Webhooks) validate(bad func(name, format string, args ...any)) {
	within(bad, "webhooks.max_per_workspace", w.MaxPerWorkspace, 0, 100)
}
