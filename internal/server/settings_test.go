package server

import (
	"fmt"
	"log/slog"
	"net"
	"testing"

	"github.com/modbox/modbox/internal/capacity"
	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/embedded"
	"github.com/modbox/modbox/internal/proxy"
	"github.com/modbox/modbox/internal/store"
)

// otherValues are values that differ from the settings' defaults.
var otherValues = map[string]string{
	"backup.every": "1h", "backup.directory": "/elsewhere", "backup.keep": "3", "backup.images": "all", "backup.url": "file:///bucket", "backup.key_file": "/elsewhere/key",
	"archive.url": "file:///archive", "archive.key_file": "/elsewhere/key", "archive.after": "1h", "archive.grace": "1h", "archive.output": "true", "archive.images": "true", "archive.copies": "true",
	"oidc":                          `[{"name":"acme","issuer":"https://id.example.com","client_id":"modbox"}]`,
	"public_url":                    "https://modbox.example.com",
	"console.url":                   "https://console.example.com",
	"domain":                        "box.example.com",
	"state_dir":                     "/other/state",
	"run_dir":                       "/other/run",
	"tls.acme.hosts":                "seven.example.com",
	"tls.acme.email":                "seven@example.com",
	"tls.acme.directory":            "https://acme.test/directory",
	"cgroup_parent":                 "other",
	"http.response_timeout":         "7s",
	"http.max_connections":          "7",
	"sandbox.default_memory":        "300Mi",
	"sandbox.default_cpu":           "300m",
	"sandbox.default_disk":          "300Mi",
	"sandbox.max_memory":            "3Gi",
	"sandbox.max_cpu":               "3",
	"sandbox.max_disk":              "3Gi",
	"sandbox.max_count":             "7",
	"sandbox.automatic_checkpoints": "7",
	"sandbox.max_processes":         "70",
	"sandbox.create_concurrency":    "77",
	"build.max_count":               "7",
	"snapshot.max_count":            "7",
	"quota.sandboxes":               "7", "quota.memory": "7Gi", "quota.cpu": "7", "quota.disk": "7Gi", "quota.archive": "7Gi", "quota.creates_per_minute": "7", "quota.workspaces": "7",
	"min_free_disk":          "7Gi",
	"snapshot.max_bytes":     "7Gi",
	"build.timeout":          "7m",
	"build.memory":           "700Mi",
	"build.disk":             "7Gi",
	"build.packages_max_age": "7h", "build.pip_index_url": "https://pip.test/simple",
	"pool.size":                 "7",
	"template.max_bytes":        "7Gi",
	"sandbox.retention":         "7h",
	"sandbox.start_timeout":     "7s",
	"sandbox.url_access":        "key",
	"sandbox.readiness_timeout": "7s",
	"sandbox.answer_timeout":    "7s",
	"exec.default_timeout":      "7s",
	"exec.max_timeout":          "7m",
	"exec.default_output":       "7Ki",
	"exec.max_output":           "7Mi",
	"exec.max_stream":           "1Mi", "exec.max_streams": "7Gi", "exec.retention": "1h", "exec.max_kept": "7",
	"network.allow_cidrs":        "10.7.0.0/16",
	"network.resolvers":          "192.0.2.7",
	"images.default_registry":    "registry.test",
	"images.insecure_registries": "registry.test:7",
	"images.private_registries":  "true",
	"images.recheck_interval":    "7s",
	"images.stall_timeout":       "7s",
	"images.max_disk":            "7Gi",
	"images.memory":              "700Mi",
	"disk.ballast":               "7Mi", "disk.evict_below": "7Mi",
	"quarantine.max_age": "7h", "quarantine.max_bytes": "7Mi",
	"capacity.memory_overcommit": "1.5", "capacity.memory_reserve": "1Gi", "capacity.pause_below": "2Gi", "capacity.pause_idle": "5m", "capacity.disk_overcommit": "1.5",
	"connections.max": "70", "connections.max_per_address": "7", "connections.max_per_user": "7", "connections.max_sandbox_urls": "7",
	"http.path_urls": "off", "http.cors_origins": "https://seven.test", "metrics.access": "token",
	"ssh.public_address": "ssh.seven.test:7", "ssh.max_connections": "7", "ssh.max_per_user": "7",
	"webhooks.allow_cidrs": "10.7.0.0/16", "webhooks.max_per_workspace": "7", "events.max_streams": "7", "events.max_streams_per_workspace": "7", "events.max_streams_per_user": "7",
	"mcp.max_sessions": "7", "mcp.max_sessions_per_workspace": "7", "mcp.max_sessions_per_user": "7", "mcp.idle_timeout": "7m",
	"database.url": "postgres://seven@db.test/seven", "database.max_connections": "7", "database.connect_timeout": "7s", "database.statement_timeout": "7s",
	"kubernetes.max_pods": "77", "kubernetes.memory_overhead": "77Mi", "kubernetes.disk_overhead": "77Mi", "kubernetes.start_timeout": "77s",
	"audit.retention": "48h", "audit.max_bytes": "2Gi",
}

// elsewhere are settings that no part receives, because the server uses them itself: TestPublicURL,
// TestLogger, TestReadCA and the tests of test/e2e cover them.
var elsewhere = map[string]bool{
	"role": true, "standby": true, // TestControl, TestStandbyOnPostgres
	"listen": true, "tls.cert": true, "tls.key": true, // TestRenewedFiles
	"tls.acme.ca_file": true, "tls.acme.http_listen": true, "tls.acme.dns_program": true, // test/acme
	"log.level": true, "log.format": true, "http.drain_timeout": true, "network.ca_file": true,
	"database.password_file":  true,                                       // TestDatabasePassword
	"worker.listen":           true,                                       // TestWorker
	"worker.secret_dir":       true,                                       // TestSecretDir
	"worker.lost_after":       true,                                       // TestLostWorker of test/e2e
	"replica.address":         true,                                       // TestReplicaAddress of internal/config
	"replica.active":          true,                                       // TestReplicaActive of internal/config
	"kubernetes.pod_template": true, "kubernetes.sandboxes_per_pod": true, // TestPodPerSandbox of test/cluster
	"secrets.key_file": true, "http.trusted_proxies": true,
	"traces.endpoint": true, "traces.percent": true, "traces.headers_file": true, // test/monitoring, as the next five
	"metrics.endpoint": true, "metrics.interval": true, "metrics.headers_file": true, "log.endpoint": true, "log.headers_file": true,
	"ssh.listen":       true,                              // TestSSH
	"sandbox.platform": true,                              // TestPlatform
	"log.requests":     true, "http.allow_insecure": true, // TestServerPages, TestExposure
}

// wired returns all settings of the server's parts as text.
func wired(t *testing.T, environ ...string) string {
	t.Helper()
	cfg, err := config.Load(config.Source{Environ: append(environ, "HOME=/home")})
	if err != nil {
		t.Fatal(err)
	}
	urls, err := proxy.NewURLs(publicURL(cfg, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}), cfg.Domain)
	if err != nil {
		t.Fatal(err)
	}
	l, a := lifecycleConfig(cfg, capacity.Machine{MemoryBytes: 16 << 30, DiskBytes: 100 << 30, Cores: 4}, urls), apiConfig(cfg, urls, "test")
	shown := fmt.Sprintln(l.SandboxURL("label"), a.SandboxURL("label"), cfg.Console.At(urls.Server()))
	l.SandboxURL, a.SandboxURL = nil, nil // functions differ each time
	log := slog.New(slog.DiscardHandler)
	d := driverConfig(cfg, embedded.Paths{}, log)
	d.Logger = nil
	n := egressConfig(cfg, nil)
	p := edgeConfig(cfg, urls)
	p.Proxy.URLs = proxy.URLs{}
	o, err := signInProviders(cfg)
	if err != nil {
		t.Fatal(err)
	}
	i := imageOptions(cfg, &store.Store{}, nil, nil)
	i.InUse, i.Remote.Login, i.Released = nil, nil, nil
	shown += fmt.Sprintf("%+v %+v\n", sshConfig(cfg), sshAddress(cfg, &net.TCPAddr{Port: 2222}))
	obtained, err := acmeConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	shown += fmt.Sprintf("%+v\n", obtained)
	location, err := storeLocation(cfg)
	if err != nil {
		t.Fatal(err)
	}
	shown += fmt.Sprintf("%+v\n", location.Postgres)
	shown += fmt.Sprintf("%+v\n%+v\n%+v\n", backupSettings(cfg), eventsConfig(cfg), webhooksConfig(cfg)) + fmt.Sprintln(outputConfig(cfg), storedImagesConfig(cfg), evictionConfig(cfg), cfg.Disk.Ballast, podsConfig(cfg))
	return shown + fmt.Sprintf("%+v\n%+v\n%+v\n%+v\n%+v\n%+v\n%+v\n%+v\n%+v\n%+v", d, l, a, p, n, i, o, auditConfig(cfg), accountsConfig(cfg), connectionLimits(cfg, log))
}

func TestEverySettingArrives(t *testing.T) {
	before := wired(t)
	if again := wired(t); again != before {
		t.Fatalf("the same settings show differently:\n%s\n%s", before, again)
	}
	for _, s := range config.Settings() {
		if elsewhere[s.Name] {
			continue
		}
		value, ok := otherValues[s.Name]
		if !ok {
			t.Errorf("nothing shows that %s is used", s.Name)
			continue
		}
		if wired(t, s.Env()+"="+value) == before {
			t.Errorf("%s=%s changes nothing", s.Name, value)
		}
	}
}
