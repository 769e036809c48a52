package config

import (
	"net/url"
	"time"
)

// Metrics configures access to the server's metrics.
type Metrics struct {
	Access string `yaml:"access" doc:"Requests to /metrics that the server answers: loopback for direct requests from its own machine, token for requests with an administrator's token, public for all."`

	Endpoint    string   `yaml:"endpoint" doc:"Receiver of metrics by OTLP over HTTP, such as http://127.0.0.1:4318; the server adds /v1/metrics. Empty: the server sends no metrics."`
	Interval    Duration `yaml:"interval" doc:"Time between two exports of the metrics to the receiver."`
	HeadersFile string   `yaml:"headers_file" doc:"File with further headers for the receiver of metrics, such as an authorization: lines NAME: VALUE."`
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
	receiver(bad, "traces.endpoint", c.Traces.Endpoint)
	receiver(bad, "metrics.endpoint", c.Metrics.Endpoint)
	receiver(bad, "log.endpoint", c.Log.Endpoint)
	within(bad, "traces.percent", c.Traces.Percent, 0, 100)
	within(bad, "metrics.interval", c.Metrics.Interval, Duration(time.Second), Duration(time.Hour))
}

// receiver checks the URL of a receiver by OTLP, which may be missing.
func receiver(bad func(name, format string, args ...any), name, endpoint string) {
	if u, err := url.Parse(endpoint); err != nil || endpoint != "" && (u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		bad(name, "%q is not an http or https URL", endpoint)
	}
}
