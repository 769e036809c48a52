package api

import (
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/sandbox"
)

// quantityMax is far over what any host has and far under what overflows.
const quantityMax = 1 << 60

// parseResources reads resources in Kubernetes notation; what is omitted is 0.
func parseResources(r *wire.Resources) (out sandbox.Resources, err error) {
	if r == nil {
		return out, nil
	}
	if out.MemoryBytes, err = parseQuantity("resources.memory", r.Memory, (*resource.Quantity).Value); err != nil {
		return out, err
	}
	if out.CPUMilli, err = parseQuantity("resources.cpu", r.CPU, (*resource.Quantity).MilliValue); err != nil {
		return out, err
	}
	out.DiskBytes, err = parseQuantity("resources.disk", r.Disk, (*resource.Quantity).Value)
	return out, err
}

func parseQuantity(field, s string, value func(*resource.Quantity) int64) (int64, error) {
	if s == "" {
		return 0, nil
	}
	q, err := resource.ParseQuantity(s)
	if err != nil {
		return 0, sandbox.InvalidField(field, "%q is not a quantity such as 512Mi, 2Gi, 500m or 2", s)
	}
	if q.Sign() <= 0 {
		return 0, sandbox.InvalidField(field, "must be more than 0")
	}
	if q.CmpInt64(quantityMax) > 0 {
		return 0, sandbox.InvalidField(field, "is too large")
	}
	return value(&q), nil
}

func formatResources(r sandbox.Resources) wire.Resources {
	return wire.Resources{
		Memory: formatBytes(r.MemoryBytes),
		CPU:    formatMilli(r.CPUMilli),
		Disk:   formatBytes(r.DiskBytes),
	}
}

func formatBytes(n int64) string { return resource.NewQuantity(n, resource.BinarySI).String() }

func formatMilli(n int64) string { return resource.NewMilliQuantity(n, resource.DecimalSI).String() }
