package lifecycle

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/modbox/modbox/internal/sandbox"
)

// resource describes one field of sandbox.Resources for checks and messages.
type resource struct {
	name     string // on the wire
	of       func(*sandbox.Resources) *int64
	min, max int64
	show     func(int64) string
}

var resourceTable = []resource{
	{"memory", func(r *sandbox.Resources) *int64 { return &r.MemoryBytes }, sandbox.MemoryMin, math.MaxInt64, showBytes},
	{"cpu", func(r *sandbox.Resources) *int64 { return &r.CPUMilli }, sandbox.CPUMilliMin, sandbox.CPUMilliMax, showMilli},
	{"disk", func(r *sandbox.Resources) *int64 { return &r.DiskBytes }, sandbox.DiskMin, math.MaxInt64, showBytes},
}

// showBytes writes n as callers write it: in the largest unit that keeps it whole.
func showBytes(n int64) string {
	for _, u := range []struct {
		size int64
		name string
	}{{1 << 30, "Gi"}, {1 << 20, "Mi"}, {1 << 10, "Ki"}} {
		if n%u.size == 0 && n != 0 {
			return fmt.Sprintf("%d%s", n/u.size, u.name)
		}
	}
	return fmt.Sprint(n)
}

func showMilli(n int64) string { return fmt.Sprintf("%dm", n) }

// validate checks what a caller asked for; errors name the field as on the wire.
func (c *Config) validate(req *CreateRequest) error {
	if req.Name != "" {
		if err := checkText("name", req.Name, sandbox.NameMax); err != nil {
			return err
		}
	}
	if req.Image != "" {
		if err := checkText("image", req.Image, sandbox.ImageRefMax); err != nil {
			return err
		}
	}
	if req.Snapshot != "" {
		if err := checkText("snapshot", req.Snapshot, sandbox.ImageRefMax); err != nil {
			return err
		}
	}
	if req.IdempotencyKey != "" {
		if err := checkText("Idempotency-Key", req.IdempotencyKey, keyMax); err != nil {
			return err
		}
	}
	if req.TTL != 0 && (req.TTL < c.ttlMin || req.TTL > sandbox.TTLMax) {
		return sandbox.InvalidField("ttl_seconds", "must be %d to %d", int(c.ttlMin/time.Second), int(sandbox.TTLMax/time.Second))
	}
	for _, r := range resourceTable {
		switch n := *r.of(&req.Resources); {
		case n == 0: // the default
		case n < r.min:
			return sandbox.InvalidField("resources."+r.name, "must be at least %s", r.show(r.min))
		case n > *r.of(&c.Max):
			return sandbox.InvalidField("resources."+r.name, "must be at most %s, the maximum of this server", r.show(*r.of(&c.Max)))
		}
	}
	if err := c.checkTimeouts(req.Timeouts); err != nil {
		return err
	}
	if err := checkPorts("network.ports", req.Network.Ports); err != nil {
		return err
	}
	if err := checkMetadata(req.Description, req.Metadata); err != nil {
		return err
	}
	if req.Command != nil {
		if err := req.Command.validate(); err != nil {
			return err
		}
	} else if req.OneShot {
		return sandbox.InvalidField("mode", "a one-shot sandbox must be given a command")
	}
	if err := checkDependencies(req.Dependencies, req.Packages); err != nil {
		return err
	}
	if err := checkEnv(req.Env); err != nil {
		return err
	}
	return checkLabels(req.Labels)
}

// checkTimeouts checks the timeouts beside the ttl; 0 is none.
func (c *Config) checkTimeouts(t sandbox.Timeouts) error {
	for _, d := range []struct {
		field string
		value time.Duration
		min   time.Duration
	}{
		{"idle_seconds", t.Idle, c.idleMin},
		{"paused_seconds", t.Paused, min(c.idleMin, sandbox.PausedMin)},
		{"execution_seconds", t.Execution, min(c.idleMin, time.Second)},
	} {
		if d.value != 0 && (d.value < d.min || d.value > sandbox.TimeoutMax) {
			return sandbox.InvalidField("timeouts."+d.field, "must be %d to %d", int(d.min/time.Second), int(sandbox.TimeoutMax/time.Second))
		}
	}
	switch t.OnIdle {
	case "", sandbox.OnIdleDestroy, sandbox.OnIdlePause:
		return nil
	}
	return sandbox.InvalidField("timeouts.on_idle", "must be %s or %s", sandbox.OnIdleDestroy, sandbox.OnIdlePause)
}

// checkMetadata checks the caller's own words about a sandbox.
func checkMetadata(description string, metadata map[string]string) error {
	if len(description) > sandbox.DescriptionMax || !utf8.ValidString(description) {
		return sandbox.InvalidField("description", "must be at most %d bytes of UTF-8", sandbox.DescriptionMax)
	}
	size := 0
	for key, value := range metadata {
		if key == "" || !utf8.ValidString(key) || !utf8.ValidString(value) {
			return sandbox.InvalidField(fieldOf("metadata", key), "keys and values must be UTF-8, keys not empty")
		}
		size += len(key) + len(value)
	}
	if len(metadata) > sandbox.MetadataMax || size > sandbox.MetadataByteMax {
		return sandbox.InvalidField("metadata", "must hold at most %d entries and %d bytes", sandbox.MetadataMax, sandbox.MetadataByteMax)
	}
	return nil
}

// checkText accepts 1 to limit characters without control characters.
func checkText(field, s string, limit int) error {
	if !utf8.ValidString(s) {
		return sandbox.InvalidField(field, "must be valid UTF-8")
	}
	if n := utf8.RuneCountInString(s); n < 1 || n > limit {
		return sandbox.InvalidField(field, "must be 1 to %d characters long", limit)
	}
	if strings.ContainsFunc(s, unicode.IsControl) {
		return sandbox.InvalidField(field, "must not hold control characters")
	}
	return nil
}

// checkEnv checks environment variables. No message holds a value: they are secrets.
func checkEnv(env map[string]string) error {
	if len(env) > sandbox.EnvMax {
		return sandbox.InvalidField("env", "must hold at most %d variables", sandbox.EnvMax)
	}
	size := 0
	for name, value := range env {
		size += len(name) + len(value)
		if !validEnvName(name) {
			return sandbox.InvalidField(fieldOf("env", name), "names of variables are letters, digits and underscores and do not begin with a digit")
		}
		if strings.ContainsRune(value, 0) || !utf8.ValidString(value) {
			return sandbox.InvalidField("env."+name, "must be valid UTF-8 without NUL")
		}
	}
	if size > sandbox.EnvBytesMax {
		return sandbox.InvalidField("env", "names and values together must be at most %d bytes", sandbox.EnvBytesMax)
	}
	return nil
}

func validEnvName(name string) bool {
	for i, r := range name {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}

func checkLabels(labels map[string]string) error {
	if len(labels) > sandbox.LabelsMax {
		return sandbox.InvalidField("labels", "must hold at most %d labels", sandbox.LabelsMax)
	}
	for key, value := range labels {
		bad := func(s string) bool {
			return len(s) > sandbox.LabelMax || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl)
		}
		if key == "" || bad(key) {
			return sandbox.InvalidField(fieldOf("labels", key), "keys must be 1 to %d bytes of UTF-8 without control characters", sandbox.LabelMax)
		}
		if bad(value) {
			return sandbox.InvalidField("labels."+key, "must be at most %d bytes of UTF-8 without control characters", sandbox.LabelMax)
		}
	}
	return nil
}

// fieldOf names an entry whose key is itself in doubt.
func fieldOf(field, key string) string {
	const most = 64
	if len(key) > most {
		key = key[:most] + "…"
	}
	return field + "." + strings.ToValidUTF8(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, key), "?")
}

// hash identifies what a request asks for. Replace and IdempotencyKey say how to
// treat the request, not what it asks for, and do not count.
func (req *CreateRequest) hash() string {
	canonical := *req
	canonical.Replace, canonical.IdempotencyKey = false, ""
	if len(canonical.Env) == 0 {
		canonical.Env = nil
	}
	if canonical.Timeouts.OnIdle == sandbox.OnIdleDestroy {
		canonical.Timeouts.OnIdle = "" // the default
	}
	if len(canonical.Network.Ports) == 0 {
		canonical.Network.Ports = nil
	}
	if len(canonical.Labels) == 0 {
		canonical.Labels = nil
	}
	data, err := json.Marshal(canonical) // maps are written sorted
	if err != nil {
		panic(err) // strings and numbers only: cannot fail
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
