package environment

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/sandbox"
)

func TestAgent(t *testing.T) {
	s := New(Config{
		SandboxURL: func(label string) string { return "http://" + label },
		Nameserver: "10.0.0.1", NetworkCA: []byte("ca"),
	}, nil, nil, nil)
	img := spec.Image{}
	img.Config.Env = []string{"A=image", "B=image", "MODBOX_SANDBOX_NAME=image", "=x", "broken"}
	img.Config.Entrypoint, img.Config.Cmd = []string{"sh"}, []string{"-c", "true"}
	sb := sandbox.Sandbox{ID: "id", Name: "name", HostLabel: "job-1-abc", Env: map[string]string{"B": "caller", "MODBOX_SANDBOX_URL": "caller"}}
	want := agentapi.Config{
		Hostname: "job-1", Main: []string{"sh", "-c", "true"},
		Env: map[string]string{
			"A": "image", "B": "caller", "MODBOX_SANDBOX_ID": "id", "MODBOX_SANDBOX_NAME": "name", "MODBOX_SANDBOX_URL": "caller",
			"PIP_RETRIES": "0", "NPM_CONFIG_FETCH_RETRIES": "0", "PIP_EXTRA_INDEX_URL": noNetworkIndex,
		},
	}
	if diff := cmp.Diff(want, s.Agent(&sb, &img)); diff != "" {
		t.Errorf("Agent() (-want +got):\n%s", diff)
	}
	sb.Network.Enabled = true
	delete(want.Env, "PIP_RETRIES")
	delete(want.Env, "NPM_CONFIG_FETCH_RETRIES")
	delete(want.Env, "PIP_EXTRA_INDEX_URL")
	want.Network = &agentapi.Network{Nameserver: "10.0.0.1", CA: "ca"}
	if diff := cmp.Diff(want, s.Agent(&sb, &img)); diff != "" {
		t.Errorf("Agent() with a network (-want +got):\n%s", diff)
	}
	s.cfg.Nameserver = ""
	if got := s.Agent(&sb, &img); got.Network != nil {
		t.Errorf("Agent() of a server without networks has the network %+v", got.Network)
	}
}

func TestHostname(t *testing.T) {
	for label, want := range map[string]string{"job-1-abc": "job-1", "abc": "sandbox", "-abc": "sandbox", "": "sandbox"} {
		if got := Hostname(&sandbox.Sandbox{HostLabel: label}); got != want {
			t.Errorf("Hostname(%q) = %q, want %q", label, got, want)
		}
	}
}
