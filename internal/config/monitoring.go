package config

import "net/url"

// Metrics configures access to the server's metrics.
type Metrics struct {
	Access string `yaml:"access" doc:"Requests to /metrics that the server answers: loopback for direct requests from its own machine, token for requests with an administrator's token, public for all."`
}

// Traces configures the export of traces by OpenTelemetry's protocol.
type Traces struct {
	Endpoint    string `yaml:"endpoint" doc:"Receiver of traces by OTLP over HTTP, such as http://127.0.0.1:4318; the server adds /v1/traces. Empty: no traces."`
	Percent     int    `yaml:"percent" doc:"Part of the requests that the server traces, in percent."`
	HeadersFile string `yaml:"headers_file" doc:"File with further headers for the receiver of traces, such as an authorization: lines NAME: VALUE."`
}

// validateMonitoring checks how the server is watched.
func (c *Config) validateMonitoring(bad func(name, format string, args ...any)) {
	oneOf(bad, "metrics.access", c.Metrics.Access, "loopback", "token", "public")
	if u, err := url.Parse(c.Traces.Endpoint); err != nil || c.Traces.Endpoint != "" && (u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		bad("traces.endpoint", "%q is not an http or https URL", c.Traces.Endpoint)
	}
	within(bad, "traces.percent", c.Traces.Percent, 0, 100)
}
