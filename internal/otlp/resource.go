package otlp

import (
	"os"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
)

// serviceName names this program to receivers.
const serviceName = "modbox"

// resourceOf describes this server to a receiver.
func resourceOf(to Receiver) *resourcepb.Resource {
	list := []*commonpb.KeyValue{text("service.name", serviceName), text("service.version", to.Version)}
	if to.Instance != "" {
		list = append(list, text("service.instance.id", to.Instance))
	}
	if host, err := os.Hostname(); err == nil {
		list = append(list, text("host.name", host))
	}
	return &resourcepb.Resource{Attributes: list}
}
