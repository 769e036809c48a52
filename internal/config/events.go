package config

// Events bounds the streams of events.
type Events struct {
	MaxStreams             int `yaml:"max_streams" doc:"Maximum number of open streams of events (docs/events.md). 0: no limit."`
	MaxStreamsPerWorkspace int `yaml:"max_streams_per_workspace" doc:"Maximum number of open streams of events in a workspace. 0: no limit."`
}

func (e *Events) validate(bad func(name, format string, args ...any)) {
	within(bad, "events.max_streams", e.MaxStreams, 0, 1<<20)
	within(bad, "events.max_streams_per_workspace", e.MaxStreamsPerWorkspace, 0, 1<<20)
}
