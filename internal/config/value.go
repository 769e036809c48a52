package config

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Duration is a time.Duration written as 30s, 10m or 1h30m; "0" is allowed.
type Duration time.Duration

// Std returns d as a time.Duration.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// String returns d in its shortest form, e.g. 10m.
func (d Duration) String() string {
	switch t := time.Duration(d); {
	case t == 0:
		return "0"
	case t%time.Hour == 0:
		return fmt.Sprintf("%dh", t/time.Hour)
	case t%time.Minute == 0:
		return fmt.Sprintf("%dm", t/time.Minute)
	default:
		return t.String()
	}
}

// MarshalText is the inverse of UnmarshalText.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what time.ParseDuration does.
func (d *Duration) UnmarshalText(text []byte) error {
	t, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is not a duration such as 30s, 10m or 1h", text)
	}
	*d = Duration(t)
	return nil
}

// Bytes is a number of bytes written as a Kubernetes quantity: 512Mi, 2Gi, 1000000.
type Bytes int64

// String returns the quantity, e.g. 512Mi.
func (b Bytes) String() string {
	return resource.NewQuantity(int64(b), resource.BinarySI).String()
}

// MarshalText is the inverse of UnmarshalText.
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// UnmarshalText reads a Kubernetes quantity.
func (b *Bytes) UnmarshalText(text []byte) error {
	q, err := resource.ParseQuantity(string(text))
	if err != nil || q.Sign() < 0 {
		return fmt.Errorf("%q is not a size such as 512Mi or 2Gi", text)
	}
	*b = Bytes(q.Value())
	return nil
}

// CPU is thousandths of a core written as a Kubernetes quantity: 500m, 2.
type CPU int64

// String returns the quantity, e.g. 500m.
func (c CPU) String() string {
	return resource.NewMilliQuantity(int64(c), resource.DecimalSI).String()
}

// MarshalText is the inverse of UnmarshalText.
func (c CPU) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads a Kubernetes quantity.
func (c *CPU) UnmarshalText(text []byte) error {
	q, err := resource.ParseQuantity(string(text))
	if err != nil || q.Sign() < 0 {
		return fmt.Errorf("%q is not an amount of CPU such as 500m or 2", text)
	}
	*c = CPU(q.MilliValue())
	return nil
}
