package config_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/modbox/modbox/internal/config"
)

var update = flag.Bool("update", false, "write the generated files")

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "modbox.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPrecedence(t *testing.T) {
	file := write(t, "listen: 127.0.0.1:1\nlog: {level: warn, format: json}\nsandbox: {max_memory: 1Gi, retention: 90s}\n")
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags := config.AddFlags(fs)
	if err := fs.Parse([]string{"--listen=127.0.0.1:3", "--sandbox-default-cpu", "250m"}); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(config.Source{
		File:    file,
		Environ: []string{"MODBOX_LISTEN=127.0.0.1:2", "MODBOX_LOG_LEVEL=debug", "MODBOX_STATE_DIR=/s", "MODBOX_API_TOKEN=ignored"},
		Flags:   flags,
	})
	if err != nil {
		t.Fatal(err)
	}
	got := []any{c.Listen, c.Log.Level, c.Log.Format, c.StateDir, c.Sandbox.MaxMemory, c.Sandbox.Retention.Std(), c.Sandbox.DefaultCPU, c.Exec.MaxTimeout.Std()}
	want := []any{"127.0.0.1:3", "debug", "json", "/s", config.Bytes(1 << 30), 90 * time.Second, config.CPU(250), time.Hour}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
}

func TestErrorsNameTheSetting(t *testing.T) {
	for name, tc := range map[string]struct {
		file string
		env  string
		want []string
	}{
		"unknown_key":    {file: "listen: 127.0.0.1:1\nlog:\n  levle: info\n", want: []string{"line 3", `unknown setting "levle"`}},
		"wrong_type":     {file: "sandbox:\n  max_count: many\n", want: []string{"line 2"}},
		"bad_size":       {env: "MODBOX_SANDBOX_MAX_DISK=lots", want: []string{"MODBOX_SANDBOX_MAX_DISK", "lots", "2Gi"}},
		"no_worker":      {env: "MODBOX_ROLE=control", want: []string{"role", "worker.listen"}},
		"wrong_role":     {env: "MODBOX_ROLE=worker", want: []string{"role", "all, control"}},
		"host_settings":  {file: "role: control\nworker: {listen: \"127.0.0.1:1\"}\ncgroup_parent: x\nsandbox: {platform: kvm}\n", want: []string{"cgroup_parent", "sandbox.platform", "workers"}},
		"standby_alone":  {env: "MODBOX_STANDBY=true", want: []string{"standby", "role control"}},
		"standby_sqlite": {file: "role: control\nworker: {listen: \"127.0.0.1:1\"}\nstandby: true\n", want: []string{"standby", "database.url"}},
		"standby_acme":   {file: "role: control\nworker: {listen: \"127.0.0.1:1\"}\nstandby: true\ndatabase: {url: postgres://u@h/d}\ntls: {acme: {hosts: a.example.com}}\n", want: []string{"standby", "tls.acme.hosts"}},
		"default_over":   {env: "MODBOX_SANDBOX_DEFAULT_MEMORY=9Gi", want: []string{"sandbox.default_memory", "8Gi"}},
		"bad_listen":     {env: "MODBOX_LISTEN=7070", want: []string{"listen", "ADDRESS:PORT"}},
		"bad_level":      {env: "MODBOX_LOG_LEVEL=loud", want: []string{"log.level", "debug, info"}},
		"cert_alone":     {env: "MODBOX_TLS_CERT=/c", want: []string{"tls", "together"}},
		"acme_and_cert":  {env: "MODBOX_TLS_ACME_HOSTS=a.test", file: "tls: {cert: /c, key: /k}", want: []string{"tls.acme.hosts", "tls.cert"}},
		"wildcard":       {file: "tls: {acme: {hosts: [a.test, '*.b.test']}}", want: []string{"tls.acme.hosts", "tls.acme.dns_program"}},
		"bad_host":       {env: "MODBOX_TLS_ACME_HOSTS=https://a.test", want: []string{"MODBOX_TLS_ACME_HOSTS", "https://a.test", "modbox.example.com"}},
		"host_address":   {env: "MODBOX_TLS_ACME_HOSTS=192.0.2.1", want: []string{"MODBOX_TLS_ACME_HOSTS", "192.0.2.1"}},
		"no_acme_host":   {env: "MODBOX_TLS_ACME_HTTP_LISTEN=:80", want: []string{"tls.acme.http_listen", "tls.acme.hosts"}},
		"acme_listen":    {file: "tls: {acme: {hosts: [a.test], http_listen: '80'}}", want: []string{"tls.acme.http_listen", "ADDRESS:PORT"}},
		"acme_program":   {file: "tls: {acme: {hosts: [a.test], dns_program: dns}}", want: []string{"tls.acme.dns_program", "absolute"}},
		"acme_both":      {file: "tls: {acme: {hosts: [a.test], dns_program: /dns, http_listen: ':80'}}", want: []string{"tls.acme.http_listen", "tls.acme.dns_program"}},
		"acme_directory": {env: "MODBOX_TLS_ACME_DIRECTORY=http://a.test", want: []string{"tls.acme.directory", "https"}},
		"acme_email":     {env: "MODBOX_TLS_ACME_EMAIL=Admin <a@b.test>", want: []string{"tls.acme.email", "admin@example.com"}},
		"long_run_dir":   {env: "MODBOX_RUN_DIR=/" + strings.Repeat("x", 60), want: []string{"run_dir", "50"}},
		"bad_range":      {env: "MODBOX_NETWORK_ALLOW_CIDRS=10.0.0.0/8,lan", want: []string{"MODBOX_NETWORK_ALLOW_CIDRS", "lan", "10.1.0.0/16"}},
		"bad_origin":     {env: "MODBOX_HTTP_CORS_ORIGINS=https://a.test,https://b.test/path", want: []string{"MODBOX_HTTP_CORS_ORIGINS", "https://b.test/path", "https://app.example.com"}},
		"range_ipv6":     {env: "MODBOX_NETWORK_ALLOW_CIDRS=fd00::/8", want: []string{"IPv4"}},
		"bad_resolver":   {file: "network:\n  resolvers: [dns.example.com]\n", want: []string{"dns.example.com"}},
		"bad_registry":   {env: "MODBOX_IMAGES_DEFAULT_REGISTRY=https://x", want: []string{"images.default_registry", "docker.io"}},
		"no_host":        {env: "MODBOX_IMAGES_DEFAULT_REGISTRY=..", want: []string{"images.default_registry", "docker.io"}},
		"no_host_either": {env: "MODBOX_IMAGES_INSECURE_REGISTRIES=..:5000", want: []string{"..:5000", "registry.example.com"}},
		"bad_insecure":   {env: "MODBOX_IMAGES_INSECURE_REGISTRIES=a b", want: []string{"a b", "registry.example.com"}},
		"bad_bool":       {env: "MODBOX_IMAGES_PRIVATE_REGISTRIES=perhaps", want: []string{"MODBOX_IMAGES_PRIVATE_REGISTRIES", "perhaps", "true"}},
		"domain_not_url": {env: "MODBOX_DOMAIN=https://x", want: []string{"domain", "sandbox.example.com"}},
	} {
		t.Run(name, func(t *testing.T) {
			src := config.Source{Environ: []string{tc.env}}
			if tc.file != "" {
				src.File = write(t, tc.file)
			}
			_, err := config.Load(src)
			if err == nil {
				t.Fatal("Load succeeded, want an error")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("Load error %q does not contain %q", err, want)
				}
			}
		})
	}
}

// TestControl checks that a control server needs no run directory, and that its path may be longer than the path of a socket.
func TestControl(t *testing.T) {
	dir := "/" + strings.Repeat("d", 80)
	c, err := config.Load(config.Source{Environ: []string{"MODBOX_ROLE=control", "MODBOX_WORKER_LISTEN=127.0.0.1:1", "MODBOX_STATE_DIR=" + dir, "MODBOX_RUN_DIR=/run/other"}})
	if err != nil || c.RunDir != dir {
		t.Errorf("run_dir = %q, %v, want the state directory", c.RunDir, err)
	}
}

func TestEmptyFileIsDefaults(t *testing.T) {
	fromFile, err := config.Load(config.Source{File: write(t, "# nothing\n")})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := config.Load(config.Source{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(plain, fromFile); diff != "" {
		t.Errorf("settings (-defaults +file):\n%s", diff)
	}
}

// The example with every comment sign before a setting removed must load and be the defaults.
func TestExampleLoads(t *testing.T) {
	var lines []string
	for line := range strings.Lines(config.Example()) {
		if trimmed := strings.TrimLeft(line, " "); strings.HasPrefix(trimmed, "#") && !strings.HasPrefix(trimmed, "# ") {
			line = strings.Replace(line, "#", "", 1)
		}
		lines = append(lines, line)
	}
	got := config.Default()
	example := yaml.NewDecoder(strings.NewReader(strings.Join(lines, "")))
	example.KnownFields(true)
	if err := example.Decode(&got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(config.Default(), got); diff != "" {
		t.Errorf("example (-default +example):\n%s", diff)
	}
	if want, n := len(config.Settings()), strings.Count(config.Example(), "\n"); n < want {
		t.Errorf("example has %d lines for %d settings", n, want)
	}
}

func TestGeneratedFiles(t *testing.T) {
	const begin, end = "<!-- settings -->\n", "<!-- /settings -->\n"
	example, docs := "../../packaging/modbox.example.yaml", "../../docs/configuration.md"
	page, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(page), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s lacks the marks of its table", docs)
	}
	wanted := map[string]string{example: config.Example(), docs: before + begin + config.Table() + end + after}
	for path, want := range wanted {
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s is not what the settings say; run make gen (-want +file):\n%s", path, diff)
		}
	}
}

func TestEverySettingIsDocumented(t *testing.T) {
	for _, s := range config.Settings() {
		if len(s.Doc) < 20 || !strings.HasSuffix(s.Doc, ".") {
			t.Errorf("setting %s has doc %q, want a sentence", s.Name, s.Doc)
		}
	}
}

func TestListsOfAddresses(t *testing.T) {
	for name, src := range map[string]config.Source{
		"text":            {Environ: []string{"MODBOX_NETWORK_ALLOW_CIDRS=10.1.2.3/16, 192.0.2.7", "MODBOX_NETWORK_RESOLVERS=192.0.2.53,[2001:db8::1]:5353"}},
		"list_in_a_file":  {File: write(t, "network:\n  allow_cidrs: [10.1.2.3/16, 192.0.2.7]\n  resolvers: [192.0.2.53, '[2001:db8::1]:5353']\n")},
		"words_in_a_file": {File: write(t, "network: {allow_cidrs: '10.1.2.3/16,192.0.2.7', resolvers: '192.0.2.53,[2001:db8::1]:5353'}\n")},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := config.Load(src)
			if err != nil {
				t.Fatal(err)
			}
			got := []string{c.Network.AllowCIDRs.String(), c.Network.Resolvers.String()}
			if diff := cmp.Diff([]string{"10.1.0.0/16,192.0.2.7/32", "192.0.2.53:53,[2001:db8::1]:5353"}, got); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
		})
	}
	trusting, err := config.Load(config.Source{Environ: []string{"MODBOX_HTTP_TRUSTED_PROXIES=127.0.0.1, fd00::1/8"}})
	if got, want := trusting.HTTP.TrustedProxies.String(), "127.0.0.1/32,fd00::/8"; err != nil || got != want {
		t.Errorf("trusted proxies %q, %v, want %q", got, err, want)
	}
	paged, err := config.Load(config.Source{File: write(t, "http: {cors_origins: [https://App.test, 'http://localhost:5173']}\n")})
	if got, want := paged.HTTP.CORSOrigins.String(), "https://app.test,http://localhost:5173"; err != nil || got != want {
		t.Errorf("origins %q, %v, want %q", got, err, want)
	}
	c, err := config.Load(config.Source{Environ: []string{"MODBOX_NETWORK_ALLOW_CIDRS="}})
	if err != nil || len(c.Network.AllowCIDRs) != 0 {
		t.Errorf("an empty list is %v, %v", c.Network.AllowCIDRs, err)
	}
}

func TestRegistries(t *testing.T) {
	c, err := config.Load(config.Source{Environ: []string{"MODBOX_IMAGES_DEFAULT_REGISTRY=", "MODBOX_IMAGES_INSECURE_REGISTRIES=10.0.0.5:5000, lan.example.com", "MODBOX_IMAGES_PRIVATE_REGISTRIES=false"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Images.InsecureRegistries.String(); got != "10.0.0.5:5000,lan.example.com" || c.Images.DefaultRegistry != "" || c.Images.PrivateRegistries {
		t.Errorf("registries = %q, default %q", got, c.Images.DefaultRegistry)
	}
}
