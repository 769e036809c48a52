package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// Provider is a service that people sign in with.
type Provider struct {
	Name             string   `yaml:"name" json:"name"`
	Type             string   `yaml:"type" json:"type,omitempty"`     // oidc (when empty) or github
	Issuer           string   `yaml:"issuer" json:"issuer,omitempty"` // URL
	ClientID         string   `yaml:"client_id" json:"client_id"`
	ClientSecretFile string   `yaml:"client_secret_file" json:"client_secret_file,omitempty"`
	AllowedDomains   []string `yaml:"allowed_domains" json:"allowed_domains,omitempty"`
}

// Providers are services that people sign in with; outside of the file they are
// written as a JSON array.
type Providers []Provider

// String returns the JSON, "" for none.
func (p Providers) String() string {
	if len(p) == 0 {
		return ""
	}
	b, err := json.Marshal([]Provider(p))
	if err != nil {
		return "" // strings always encode
	}
	return string(b)
}

// MarshalText is the inverse of UnmarshalText.
func (p Providers) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads a list of providers, as JSON or YAML.
func (p *Providers) UnmarshalText(text []byte) error {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	var list []Provider
	if err := d.Decode(&list); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("it is no list of sign-in providers: %w", err)
	}
	*p = list
	return nil
}

// UnmarshalYAML reads the list in the file.
func (p *Providers) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		return p.UnmarshalText([]byte(n.Value))
	}
	text, err := yaml.Marshal(n)
	if err != nil {
		return err
	}
	return p.UnmarshalText(text)
}
