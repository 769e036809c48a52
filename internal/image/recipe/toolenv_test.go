package recipe

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestToolEnv(t *testing.T) {
	got := toolEnv([]string{
		"PATH=/bin", "HTTPS_PROXY=http://proxy:3128", "no_proxy=example.org", "NPM_CONFIG_REGISTRY=http://npm", "npm_config_cache=/c",
		"MODBOX_TOKEN=secret", "MODBOX_SSO_CLIENT_SECRET=secret", "AWS_SECRET_ACCESS_KEY=secret", "npm_config_=", "PATHS=no", "odd",
	})
	want := []string{"PATH=/bin", "HTTPS_PROXY=http://proxy:3128", "no_proxy=example.org", "NPM_CONFIG_REGISTRY=http://npm", "npm_config_cache=/c"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("toolEnv (-want +got):\n%s", d)
	}
	if got := toolEnv(nil); got == nil {
		t.Error("toolEnv(nil) = nil, which a command takes for the whole environment")
	}
}
