package config

import (
	"fmt"
	"math"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	ociname "github.com/google/go-containerregistry/pkg/name"
	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/modbox/modbox/internal/image/reference"
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

// UnmarshalText parses the format of time.ParseDuration.
func (d *Duration) UnmarshalText(text []byte) error {
	t, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is not a duration such as 30s, 10m or 1h", text)
	}
	*d = Duration(t)
	return nil
}

// Auto is the value of a setting that is derived from the machine, written as auto.
const Auto = -1

// auto is the text of Auto.
const auto = "auto"

// Bytes is a number of bytes written as a Kubernetes quantity: 512Mi, 2Gi, 1000000; or Auto.
type Bytes int64

// String returns the quantity, e.g. 512Mi.
func (b Bytes) String() string {
	if b == Auto {
		return auto
	}
	return resource.NewQuantity(int64(b), resource.BinarySI).String()
}

// MarshalText is the inverse of UnmarshalText.
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// UnmarshalText reads a Kubernetes quantity.
func (b *Bytes) UnmarshalText(text []byte) error {
	if string(text) == auto {
		*b = Auto
		return nil
	}
	q, err := resource.ParseQuantity(string(text))
	if err != nil || q.Sign() < 0 {
		return fmt.Errorf("%q is not a size such as 512Mi or 2Gi", text)
	}
	*b = Bytes(q.Value())
	return nil
}

// Count is a number of things, or Auto.
type Count int

// String returns the number.
func (c Count) String() string {
	if c == Auto {
		return auto
	}
	return strconv.Itoa(int(c))
}

// MarshalText is the inverse of UnmarshalText.
func (c Count) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads a whole number, or auto.
func (c *Count) UnmarshalText(text []byte) error {
	if string(text) == auto {
		*c = Auto
		return nil
	}
	n, err := strconv.ParseUint(string(text), 10, 31)
	if err != nil {
		return fmt.Errorf("%q is not a whole number", text)
	}
	*c = Count(n)
	return nil
}

// Factor is a multiplier, written as 4 or 1.5; or Auto.
type Factor float64

// String returns the number.
func (f Factor) String() string {
	if f == Auto {
		return auto
	}
	return strconv.FormatFloat(float64(f), 'g', -1, 64)
}

// MarshalText is the inverse of UnmarshalText.
func (f Factor) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads a number, or auto.
func (f *Factor) UnmarshalText(text []byte) error {
	if string(text) == auto {
		*f = Auto
		return nil
	}
	n, err := strconv.ParseFloat(string(text), 64)
	if err != nil || math.IsNaN(n) || n < 0 {
		return fmt.Errorf("%q is not a number such as 4 or 1.5", text)
	}
	*f = Factor(n)
	return nil
}

// CPU is thousandths of a core written as a Kubernetes quantity: 500m, 2; or Auto.
type CPU int64

// String returns the quantity, e.g. 500m.
func (c CPU) String() string {
	if c == Auto {
		return auto
	}
	return resource.NewMilliQuantity(int64(c), resource.DecimalSI).String()
}

// MarshalText is the inverse of UnmarshalText.
func (c CPU) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads a Kubernetes quantity.
func (c *CPU) UnmarshalText(text []byte) error {
	if string(text) == auto {
		*c = Auto
		return nil
	}
	q, err := resource.ParseQuantity(string(text))
	if err != nil || q.Sign() < 0 {
		return fmt.Errorf("%q is not an amount of CPU such as 500m or 2", text)
	}
	*c = CPU(q.MilliValue())
	return nil
}

// Prefixes are ranges of addresses, written as 10.1.0.0/16,192.0.2.7.
type Prefixes []netip.Prefix

// String returns the ranges separated by commas.
func (p Prefixes) String() string { return joined(p) }

// MarshalText is the inverse of UnmarshalText.
func (p Prefixes) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads ranges separated by commas; an address is a range of one.
func (p *Prefixes) UnmarshalText(text []byte) (err error) {
	*p, err = split(text, func(s string) (netip.Prefix, error) {
		prefix, err := netip.ParsePrefix(s)
		if addr, aerr := netip.ParseAddr(s); aerr == nil {
			prefix, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			return netip.Prefix{}, fmt.Errorf("%q is not a range of addresses such as 10.1.0.0/16", s)
		}
		return prefix.Masked(), nil
	})
	return err
}

// Addresses are addresses of DNS servers, written as 192.0.2.53,192.0.2.54:5353.
type Addresses []netip.AddrPort

// String returns the addresses separated by commas.
func (a Addresses) String() string { return joined(a) }

// MarshalText is the inverse of UnmarshalText.
func (a Addresses) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads addresses separated by commas; their port is 53 when they name none.
func (a *Addresses) UnmarshalText(text []byte) (err error) {
	*a, err = split(text, func(s string) (netip.AddrPort, error) {
		if addr, err := netip.ParseAddr(s); err == nil {
			return netip.AddrPortFrom(addr, 53), nil
		}
		addr, err := netip.ParseAddrPort(s)
		if err != nil || addr.Port() == 0 {
			return netip.AddrPort{}, fmt.Errorf("%q is not an address such as 192.0.2.53 or 192.0.2.53:5353", s)
		}
		return addr, nil
	})
	return err
}

// Registries are image registries, written as registry.example.com:5000,10.0.0.5.
type Registries []ociname.Registry

// String returns the registries separated by commas.
func (r Registries) String() string { return joined(r) }

// MarshalText is the inverse of UnmarshalText.
func (r Registries) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads registries separated by commas.
func (r *Registries) UnmarshalText(text []byte) (err error) {
	*r, err = split(text, func(s string) (ociname.Registry, error) {
		registry, err := ociname.NewRegistry(s, ociname.StrictValidation)
		if err != nil || !reference.IsHost(s) {
			return registry, fmt.Errorf("%q is not a registry such as registry.example.com:5000", s)
		}
		return registry, nil
	})
	return err
}

// Origin is the origin of web pages, such as https://app.example.com, or *.
type Origin string

// String returns the origin.
func (o Origin) String() string { return string(o) }

// Origins are origins of web pages, written as https://app.example.com,http://localhost:5173.
type Origins []Origin

// String returns the origins separated by commas.
func (o Origins) String() string { return joined(o) }

// MarshalText is the inverse of UnmarshalText.
func (o Origins) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText reads origins separated by commas.
func (o *Origins) UnmarshalText(text []byte) (err error) {
	*o, err = split(text, func(s string) (Origin, error) {
		u, err := url.Parse(s)
		if s != "*" && (err != nil || u.Scheme == "" || u.Host == "" || s != u.Scheme+"://"+u.Host || strings.Contains(s, "*")) {
			return "", fmt.Errorf("%q is not the origin of a page, such as https://app.example.com or http://localhost:5173, nor *", s)
		}
		return Origin(strings.ToLower(s)), nil
	})
	return err
}

// Strings returns the origins as strings.
func (o Origins) Strings() []string {
	list := make([]string, len(o))
	for i, origin := range o {
		list[i] = string(origin)
	}
	return list
}

// UnmarshalYAML reads a list, or the format of UnmarshalText.
func (o *Origins) UnmarshalYAML(n *yaml.Node) error { return o.UnmarshalText(words(n)) }

// UnmarshalYAML reads a list, or the format of UnmarshalText.
func (r *Registries) UnmarshalYAML(n *yaml.Node) error { return r.UnmarshalText(words(n)) }

// UnmarshalYAML reads a list, or the format of UnmarshalText.
func (p *Prefixes) UnmarshalYAML(n *yaml.Node) error { return p.UnmarshalText(words(n)) }

// UnmarshalYAML reads a list, or the format of UnmarshalText.
func (a *Addresses) UnmarshalYAML(n *yaml.Node) error { return a.UnmarshalText(words(n)) }

// words returns a list of the file in the format of UnmarshalText.
func words(n *yaml.Node) []byte {
	if n.Kind != yaml.SequenceNode {
		return []byte(n.Value)
	}
	list := make([]string, len(n.Content))
	for i, item := range n.Content {
		list[i] = item.Value
	}
	return []byte(strings.Join(list, ","))
}

func joined[T fmt.Stringer](list []T) string {
	words := make([]string, len(list))
	for i, v := range list {
		words[i] = v.String()
	}
	return strings.Join(words, ",")
}

// split parses the parts between commas; "" is none.
func split[T any](text []byte, parse func(string) (T, error)) ([]T, error) {
	var list []T
	for word := range strings.SplitSeq(string(text), ",") {
		word = strings.TrimSpace(word)
		if word == "" && strings.TrimSpace(string(text)) == "" {
			break
		}
		v, err := parse(word)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}
