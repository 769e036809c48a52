// Package quantity reads and writes amounts in Kubernetes notation, such as 512Mi or 500m.
package quantity

import (
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/sandbox"
)

// most is far over what any host has and far under what overflows.
const most = 1 << 60

// ParseResources reads resources in Kubernetes notation; an omitted resource is 0.
func ParseResources(r *wire.Resources) (out sandbox.Resources, err error) {
	if r == nil {
		return out, nil
	}
	if out.MemoryBytes, err = Parse("resources.memory", r.Memory, (*resource.Quantity).Value); err != nil {
		return out, err
	}
	if out.CPUMilli, err = Parse("resources.cpu", r.CPU, (*resource.Quantity).MilliValue); err != nil {
		return out, err
	}
	out.DiskBytes, err = Parse("resources.disk", r.Disk, (*resource.Quantity).Value)
	return out, err
}

// Parse reads the amount in a field, in the unit that value returns; 0 for "". Errors: Invalid, naming the field.
func Parse(field, s string, value func(*resource.Quantity) int64) (int64, error) {
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
	if q.CmpInt64(most) > 0 {
		return 0, sandbox.InvalidField(field, "is too large")
	}
	return value(&q), nil
}

// FormatResources writes resources.
func FormatResources(r sandbox.Resources) wire.Resources {
	return wire.Resources{
		Memory: Bytes(r.MemoryBytes),
		CPU:    Milli(r.CPUMilli),
		Disk:   Bytes(r.DiskBytes),
	}
}

// Bytes writes a number of bytes.
func Bytes(n int64) string { return resource.NewQuantity(n, resource.BinarySI).String() }

// Milli writes a number of thousandths.
func Milli(n int64) string { return resource.NewMilliQuantity(n, resource.DecimalSI).String() }
