package creation_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/creation"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/timelimit"
)

var settings = creation.Config{
	Defaults: sandbox.Resources{MemoryBytes: 512 << 20, CPUMilli: 1000, DiskBytes: 2 << 30},
	Max:      sandbox.Resources{MemoryBytes: 1 << 30, CPUMilli: 8000, DiskBytes: 64 << 30},
	Shortest: timelimit.Bounds{TTL: sandbox.TTLMin, Idle: sandbox.IdleMin},
}

// TestCheckNamesTheField: an invalid request is refused with the name that the field has on the wire.
func TestCheckNamesTheField(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for name, tt := range map[string]struct {
		req   creation.Request
		field string
	}{
		"Name":           {creation.Request{Name: long}, "name"},
		"Image":          {creation.Request{Image: long}, "image"},
		"Snapshot":       {creation.Request{Snapshot: long}, "snapshot"},
		"IdempotencyKey": {creation.Request{IdempotencyKey: long}, "Idempotency-Key"},
		"TTL":            {creation.Request{TTL: time.Nanosecond}, "ttl_seconds"},
		"Memory":         {creation.Request{Resources: sandbox.Resources{MemoryBytes: 2 << 30}}, "resources.memory"},
		"URLAccess":      {creation.Request{URLAccess: "nobody"}, "url_access"},
		"OneShot":        {creation.Request{OneShot: true}, "mode"},
		"AptPackages":    {creation.Request{AptPackages: []string{"a b"}}, "apt_packages[0]"},
		"Env":            {creation.Request{Env: map[string]string{"1A": ""}}, "env.1A"},
		"Labels":         {creation.Request{Labels: map[string]string{"a": long}}, "labels.a"},
	} {
		var coded *sandbox.Error
		if err := settings.Check(&tt.req); !errors.As(err, &coded) || coded.Code != sandbox.Invalid || coded.Field != tt.field {
			t.Errorf("Check(%s) = %v, want invalid %s", name, err, tt.field)
		}
	}
	valid := creation.Request{
		Name: "a", Image: "modbox/base", TTL: time.Hour, Resources: sandbox.Resources{MemoryBytes: 1 << 30}, URLAccess: sandbox.URLKey,
		AptPackages: []string{"curl"}, Env: map[string]string{"A": "b"}, Labels: map[string]string{"a": "b"}, IdempotencyKey: "k",
	}
	for _, req := range []creation.Request{{}, valid} {
		if err := settings.Check(&req); err != nil {
			t.Errorf("Check(%+v) = %v, want nil", req, err)
		}
	}
}
