package archtest_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// mayImport is the import table: for each package of ours the packages of ours
// that its non-test files may import. A package that is missing fails the test,
// so a new one must be placed here first. Packages below a listed one share its
// row and may import each other; internal/server wires everything and has no limit.
var mayImport = map[string][]string{
	"internal/sandbox":          {},
	"internal/account":          {"internal/sandbox"},
	"internal/page":             {"internal/sandbox"},
	"internal/metrics":          {"internal/sandbox"},
	"internal/tracing":          {"internal/sandbox"},
	"internal/otlp":             {"internal/tracing", "internal/retry"},
	"internal/agentapi":         {},
	"internal/agent":            {"internal/agentapi", "internal/proctree", "internal/agent/answer", "internal/agent/fileserver", "internal/agent/rootdir"},
	"internal/kernelapi":        {},
	"internal/program":          {},
	"internal/shellscan":        {"internal/program"},
	"internal/codescan":         {"internal/sandbox", "internal/account", "internal/agentapi", "internal/audit", "internal/fairsem", "internal/program"},
	"internal/kernel":           {"internal/kernelapi", "internal/proctree"},
	"internal/proctree":         {},
	"cmd/modbox-agent":          {"internal/agent", "internal/kernel", "internal/kernelapi", "internal/shellscan"},
	"cmd/modbox-sandbox":        {},
	"internal/front":            {},
	"cmd/modbox-front":          {"internal/front"},
	"internal/driver":           {"internal/sandbox"},
	"internal/config":           {"internal/sandbox", "internal/installation", "internal/image/reference", "internal/object/bucketurl"},
	"internal/ballast":          {"internal/sandbox"},
	"internal/sharedcall":       {},
	"internal/eviction":         {"internal/sandbox"},
	"internal/capacity":         {"internal/sandbox", "internal/quota"},
	"internal/embedded":         {},
	"internal/statedir":         {"internal/ballast", "internal/durable", "internal/retry", "internal/sandbox"},
	"internal/turn":             {"internal/sandbox", "internal/statedir"},
	"internal/durable":          {"internal/sparse"},
	"internal/sparse":           {},
	"internal/certificate":      {},
	"internal/bench":            {"client"},
	"internal/share":            {},
	"internal/broadcast":        {},
	"internal/cache":            {},
	"internal/fairsem":          {"internal/sandbox"},
	"internal/pool":             {"internal/sandbox", "internal/broadcast"},
	"internal/quota":            {"internal/metrics", "internal/sandbox", "internal/broadcast", "internal/fairsem"},
	"images":                    {},
	"packaging":                 {},
	"internal/site":             {},
	"tools/protogen":            {},
	"internal/store":            {"internal/page", "internal/sandbox", "internal/audit", "internal/catalogue", "internal/quota", "internal/registry", "internal/secret", "internal/store/accounts", "internal/store/database", "internal/store/migrations"},
	"internal/audit":            {"internal/access", "internal/page", "internal/sandbox", "internal/account"},
	"internal/access":           {},
	"internal/conns":            {"internal/sandbox"},
	"internal/forward":          {"internal/access", "internal/api", "internal/broadcast", "internal/sandbox", "internal/share"},
	"internal/auth":             {"internal/cache", "internal/page", "internal/sandbox", "internal/audit", "internal/access", "internal/account"},
	"internal/sshkey":           {"internal/account", "internal/audit", "internal/auth", "internal/broadcast", "internal/sandbox"},
	"internal/secret":           {"internal/sandbox", "internal/durable"},
	"internal/preview":          {"internal/sandbox"},
	"internal/registry":         {"internal/sandbox", "internal/audit", "internal/image/reference", "internal/retry", "internal/secret"},
	"internal/catalogue":        {"internal/sandbox", "internal/audit", "internal/image/spec", "internal/registry", "internal/retry"},
	"internal/stream":           {"internal/sandbox", "internal/durable"},
	"internal/backup":           {"internal/sandbox", "internal/archive", "internal/ballast", "internal/durable", "internal/object"},
	"internal/archive":          {"internal/sandbox", "internal/ballast", "internal/durable", "internal/object", "internal/sparse"},
	"internal/output":           {"internal/sandbox", "internal/background", "internal/ballast", "internal/fairsem", "internal/object", "internal/stream"},
	"internal/imagearchive":     {"internal/sandbox", "internal/ballast", "internal/fairsem", "internal/image/index", "internal/image/rootfs", "internal/image/verify", "internal/object", "internal/sparse"},
	"internal/archiver":         {"internal/sandbox", "internal/retry", "internal/archive", "internal/backup", "internal/background", "internal/ballast", "internal/sharedcall", "internal/box", "internal/checkpoint", "internal/driver", "internal/fairsem", "internal/object", "internal/quota"},
	"internal/object/bucketurl": {},
	"internal/object":           {"internal/sandbox", "internal/durable", "internal/retry", "internal/object/bucketurl"},
	"internal/retry":            {"internal/sandbox"},
	"internal/background":       {},
	"internal/hostmem":          {},
	"internal/pressure":         {"internal/sandbox", "internal/box", "internal/hostmem"},
	"internal/autocheckpoint":   {"internal/sandbox", "internal/background", "internal/box", "internal/checkpoint", "internal/fairsem", "internal/quota"},
	"internal/checkpoint":       {"internal/sandbox", "internal/ballast", "internal/driver", "internal/durable", "internal/quarantine", "internal/quota", "internal/retry"},
	"internal/box":              {"internal/sandbox", "internal/agentapi", "internal/background", "internal/broadcast", "internal/driver", "internal/netrule"},
	"internal/environment":      {"internal/sandbox", "internal/agentapi", "internal/audit", "internal/box", "internal/image/spec", "internal/kernelapi", "internal/retry"},
	"internal/timelimit":        {"internal/sandbox", "internal/box"},
	"internal/telemetry":        {"internal/tracing", "internal/driver", "internal/metrics", "internal/sandbox", "internal/box"},
	"internal/network":          {"internal/sandbox", "internal/audit", "internal/background", "internal/box", "internal/driver", "internal/netrule"},
	"internal/guest":            {"internal/tracing", "internal/metrics", "internal/sandbox", "internal/agentapi", "internal/audit", "internal/box", "internal/driver", "internal/retry", "internal/codescan"},
	"internal/code":             {"internal/sandbox", "internal/agentapi", "internal/audit", "internal/guest", "internal/kernelapi", "internal/codescan"},
	"internal/desktop":          {"internal/agentapi", "internal/execution", "internal/guest", "internal/page", "internal/sandbox"},
	"internal/execution":        {"internal/driver", "internal/page", "internal/sandbox", "internal/agentapi", "internal/audit", "internal/background", "internal/box", "internal/guest", "internal/retry", "internal/stream", "internal/image/spec", "internal/codescan"},
	"internal/spool":            {},
	"internal/template":         {"internal/sandbox", "internal/background", "internal/box", "internal/driver", "internal/environment", "internal/image/spec", "internal/pool", "internal/warmbox"},
	"internal/warmbox":          {"internal/sandbox", "internal/agentapi", "internal/background", "internal/box", "internal/driver", "internal/environment", "internal/image/spec", "internal/pool", "internal/quota", "internal/retry"},
	"internal/lookup":           {"internal/sandbox", "internal/audit", "internal/box", "internal/page"},
	"internal/eventlog":         {"internal/sandbox"},
	"internal/eventstream":      {"internal/sandbox", "internal/broadcast", "internal/page"},
	"internal/readiness":        {"internal/retry"},
	"internal/workbox":          {"internal/environment", "internal/sandbox", "internal/agentapi", "internal/box", "internal/driver", "internal/quota", "internal/image/spec"},
	"internal/prepare":          {"internal/metrics", "internal/sandbox", "internal/agentapi", "internal/audit", "internal/background", "internal/box", "internal/fairsem", "internal/quota", "internal/spool", "internal/workbox", "internal/image/phase", "internal/image/spec", "internal/registry"},
	"internal/snapshot":         {"internal/archiver", "internal/page", "internal/sandbox", "internal/agentapi", "internal/audit", "internal/background", "internal/box", "internal/checkpoint", "internal/driver", "internal/fairsem", "internal/prepare", "internal/quota", "internal/spool", "internal/workbox", "internal/image/phase", "internal/image/spec"},
	"internal/usage":            {"internal/sandbox", "internal/box", "internal/driver"},
	"internal/lifecycle":        {"internal/archiver", "internal/recovery", "internal/tracing", "internal/environment", "internal/telemetry", "internal/timelimit", "internal/network", "internal/usage", "internal/autocheckpoint", "internal/pressure", "internal/prepare", "internal/snapshot", "internal/workbox", "internal/execution", "internal/fairsem", "internal/guest", "internal/sandbox", "internal/background", "internal/box", "internal/checkpoint", "internal/retry", "internal/pool", "internal/quota", "internal/audit", "internal/ballast", "internal/stream", "internal/quarantine", "internal/driver", "internal/agentapi", "internal/image/spec", "internal/registry", "internal/warmbox", "internal/template", "internal/lookup", "internal/eventlog", "internal/readiness", "internal/creation", "internal/diskuse", "internal/codescan", "internal/savedbox"},
	"internal/creation":         {"internal/sandbox", "internal/catalogue", "internal/checkpoint", "internal/execution", "internal/guest", "internal/image/spec", "internal/network", "internal/pool", "internal/prepare", "internal/quota", "internal/snapshot", "internal/timelimit"},
	"internal/recovery":         {"internal/sandbox", "internal/box", "internal/checkpoint", "internal/driver", "internal/eventlog", "internal/network", "internal/quarantine", "internal/retry", "internal/timelimit", "internal/usage"},
	"internal/savedbox":         {"internal/sandbox", "internal/box", "internal/checkpoint", "internal/driver", "internal/environment", "internal/execution", "internal/image/spec", "internal/network", "internal/usage"},
	"internal/diskuse":          {"internal/sandbox", "internal/quota"},
	"internal/teardown":         {"internal/page", "internal/sandbox"},
	"internal/build":            {"internal/metrics", "internal/sandbox", "internal/agentapi", "internal/background", "internal/box", "internal/fairsem", "internal/image", "internal/image/reference", "internal/image/rootfs", "internal/prepare", "internal/quota", "internal/workbox", "internal/image/phase", "internal/image/spec", "internal/registry"},
	"internal/proxy":            {"internal/cache", "internal/sandbox", "internal/auth", "internal/access", "internal/preview", "internal/account"},
	"internal/api":              {"internal/tracing", "internal/metrics", "client/wire", "internal/sshkey", "internal/eventstream", "internal/webhook", "internal/environment", "internal/prepare", "internal/network", "internal/code", "internal/desktop", "internal/kernelapi", "internal/page", "internal/execution", "internal/guest", "internal/snapshot", "internal/sandbox", "internal/audit", "internal/access", "internal/driver/fleet", "internal/worker", "internal/lifecycle", "internal/quota", "internal/agentapi", "internal/auth", "internal/image", "internal/registry", "internal/catalogue", "internal/build", "internal/preview", "internal/account", "internal/image/phase", "internal/image/spec", "internal/codescan", "internal/program"},
	"internal/dialect":          {"internal/cache", "internal/page", "internal/execution", "internal/guest", "internal/snapshot", "internal/sandbox", "internal/audit", "internal/access", "internal/lifecycle", "internal/agentapi", "internal/auth", "internal/api", "internal/registry", "internal/catalogue", "internal/account", "internal/image/spec", "internal/netrule", "internal/network", "internal/proxy", "internal/code", "internal/kernelapi", "internal/retry", "internal/background", "internal/dialect/e2b/template", "internal/codescan"},
	"client/wire":               {},
	"client/upload":             {},
	"client":                    {"client/upload", "client/wire"},
	"client/sandbox":            {"client", "client/wire"},
	"internal/mcp":              {"client", "client/sandbox"},
	"internal/console":          {"internal/api", "internal/audit", "internal/auth", "internal/sandbox"},
	"internal/mcphttp":          {"client", "internal/api", "internal/auth", "internal/mcp", "internal/sandbox"},
	"internal/archtest":         {},
	"internal/sshd":             {"internal/account", "internal/agentapi", "internal/api", "internal/audit", "internal/auth", "internal/guest", "internal/sandbox", "internal/sshkey", "internal/statedir"},

	// The command line. Its root and the commands over the API know little of the server;
	// account and image also work on the directories of a server, without it.
	"cmd/modbox":            {"internal/cli"},
	"packaging/man":         {"internal/cli"},
	"internal/cli":          {"internal/api", "client", "internal/cli/base", "internal/cli/account", "internal/cli/code", "internal/cli/desktop", "internal/cli/image", "internal/cli/mcp", "internal/cli/operator", "internal/cli/sandbox", "internal/cli/snapshot", "internal/cli/ssh", "internal/cli/webhook"},
	"internal/cli/webhook":  {"client", "internal/cli/base"},
	"internal/cli/ssh":      {"client", "internal/cli/base", "internal/durable"},
	"internal/cli/base":     {"client", "internal/config", "internal/durable", "internal/image/phase", "internal/statedir"},
	"internal/cli/tree":     {},
	"internal/cli/code":     {"client", "client/sandbox", "internal/cli/base"},
	"internal/cli/desktop":  {"client", "internal/cli/base"},
	"internal/cli/sandbox":  {"client", "internal/cli/base", "internal/cli/image", "internal/cli/tree", "internal/image/phase"},
	"internal/cli/mcp":      {"internal/cli/base", "internal/mcp"},
	"internal/cli/snapshot": {"client", "internal/cli/base", "internal/cli/tree", "internal/image/phase"},
	"internal/cli/image":    {"client", "internal/cli/base", "internal/cli/tree", "internal/config", "internal/image", "internal/image/recipe", "internal/sandbox", "internal/server", "internal/image/phase", "internal/image/spec"},
	"internal/cli/account":  {"client", "internal/cli/base", "internal/audit", "internal/auth", "internal/durable", "internal/server", "internal/statedir", "internal/store", "internal/account"},
	"internal/cli/operator": {
		"internal/page", "client", "internal/bench", "internal/cli/base", "internal/cli/image", "internal/audit", "internal/backup", "internal/capacity", "internal/config", "internal/doctor",
		"internal/driver/gvisor", "internal/durable", "internal/embedded", "internal/image", "internal/object", "internal/sandbox", "internal/server", "internal/statedir", "internal/store", "internal/store/database", "internal/store/workerrows", "internal/worker", "internal/image/spec", "internal/quota",
	},

	// The services of a server, over whatever store, images and driver there are.
	"internal/server/services": {
		"internal/codescan", "internal/execution", "internal/output", "internal/store/policyrows", "internal/sandbox", "internal/audit", "internal/auth", "internal/build", "internal/catalogue", "internal/driver", "internal/image",
		"internal/driver/fleet", "internal/lifecycle", "internal/network", "internal/preview", "internal/proxy", "internal/quarantine", "internal/registry", "internal/secret",
		"internal/store", "internal/store/sshkeyrows", "internal/stream", "internal/api", "internal/dialect", "internal/dialect/e2b/template", "internal/mcphttp", "internal/console", "internal/sshd", "internal/teardown", "internal/sshkey", "internal/eventstream", "internal/store/eventrows",
		"internal/store/webhookrows", "internal/webhook", "internal/agentapi", "internal/forward",
	},

	// Images, and the network that guests and registries are reached by.
	"internal/netguard": {},
	"internal/netrule":  {"internal/sandbox"},
	"internal/egress":   {"internal/sandbox", "internal/netguard", "internal/netrule"},
	"internal/image": {
		"internal/sandbox", "internal/durable", "internal/image/archive", "internal/image/chain", "internal/image/compressed", "internal/image/index", "internal/image/integrity", "internal/image/lease", "internal/image/lock", "internal/image/oci", "internal/image/phase",
		"internal/image/recipe", "internal/image/reference", "internal/image/remote", "internal/image/rootfs", "internal/image/sizes", "internal/image/spec", "internal/image/stack", "internal/image/verify", "internal/quota", "internal/registry",
	},
	"internal/image/archive": {"internal/sandbox", "internal/durable", "internal/image/oci", "internal/image/rootfs", "internal/image/spec"},
	"internal/image/index": {
		"internal/sandbox", "internal/durable", "internal/image/archive", "internal/image/lock", "internal/image/recipe", "internal/image/reference", "internal/image/spec", "internal/image/stack",
	},
	"internal/store/migrations":   {},
	"internal/store/database":     {"internal/metrics", "internal/broadcast", "internal/durable", "internal/installation", "internal/page", "internal/retry", "internal/sandbox", "internal/store/migrations"},
	"internal/store/accounts":     {"internal/account", "internal/page", "internal/sandbox", "internal/store/database"},
	"internal/store/sshkeyrows":   {"internal/account", "internal/sandbox", "internal/sshkey", "internal/store/database"},
	"internal/store/policyrows":   {"internal/codescan", "internal/sandbox", "internal/store/database"},
	"internal/store/workerrows":   {"internal/store/database", "internal/worker"},
	"internal/store/webhookrows":  {"internal/sandbox", "internal/page", "internal/secret", "internal/store/database", "internal/webhook"},
	"internal/webhook":            {"internal/sandbox", "internal/audit", "internal/broadcast", "internal/retry", "internal/netguard", "internal/page", "internal/secret"},
	"internal/store/eventrows":    {"internal/sandbox", "internal/eventstream", "internal/page", "internal/store/database"},
	"internal/store/imagerows":    {"internal/sandbox", "internal/image/index", "internal/store/database"},
	"internal/image/chain":        {"internal/sandbox", "internal/image/oci", "internal/image/rootfs"},
	"internal/image/integrity":    {},
	"internal/image/lease":        {"internal/image/lock"},
	"internal/image/lock":         {},
	"internal/image/oci":          {"internal/sandbox", "internal/image/spec"},
	"internal/image/phase":        {},
	"internal/image/recipe":       {"internal/sandbox", "internal/image/phase", "internal/image/reference", "internal/image/rootfs", "internal/image/spec"},
	"internal/image/reference":    {"internal/sandbox"},
	"internal/image/registrytest": {},
	"internal/image/remote":       {"internal/sandbox", "internal/netguard", "internal/image/lock", "internal/image/oci", "internal/image/reference", "internal/image/rootfs", "internal/registry"},
	"internal/image/sizes":        {"internal/sandbox", "internal/image/archive", "internal/image/index", "internal/image/oci"},
	"internal/image/spec":         {"internal/sandbox"},
	"internal/image/stack":        {},
	"internal/image/verify":       {"internal/sandbox", "internal/durable", "internal/sharedcall", "internal/image/archive", "internal/image/index", "internal/image/integrity", "internal/image/rootfs"},
	"internal/image/compressed":   {"internal/sandbox"},
	"internal/image/rootfs":       {"internal/sandbox", "internal/image/compressed", "internal/share", "internal/sparse", "internal/image/stack"},

	// What the agent consists of.
	"internal/agent/answer":     {"internal/agentapi"},
	"internal/agent/rootdir":    {"internal/agentapi", "internal/agent/answer"},
	"internal/agent/fileserver": {"internal/agentapi", "internal/agent/answer", "internal/agent/rootdir"},

	// What is on disk beside the database.
	"internal/installation": {"internal/durable", "internal/sandbox"},
	"internal/quarantine":   {"internal/sandbox", "internal/durable"},

	// The drivers, and what proves them.
	"internal/driver/gvisor": {
		"internal/hostmem",
		"internal/driver", "internal/tracing", "internal/sandbox", "internal/sparse", "internal/agentapi", "internal/durable", "internal/driver/gvisor/agentimage", "internal/driver/gvisor/cgroup", "internal/driver/gvisor/control", "internal/driver/gvisor/launch",
		"internal/driver/gvisor/layer", "internal/driver/gvisor/ocilayer", "internal/driver/gvisor/platform", "internal/driver/gvisor/process", "internal/driver/gvisor/saved", "internal/image/stack",
	},
	"internal/driver/gvisor/agentimage": {"internal/durable", "internal/image/stack"},
	"internal/driver/gvisor/cgroup":     {},
	"internal/driver/gvisor/chunksum":   {},
	"internal/driver/gvisor/control":    {"internal/driver", "internal/agentapi"},
	"internal/driver/gvisor/gvisortest": {},
	"internal/driver/gvisor/launch":     {"internal/driver", "internal/sandbox", "internal/image/stack", "internal/driver/gvisor/agentimage", "internal/driver/gvisor/cgroup", "internal/driver/gvisor/control", "internal/driver/gvisor/layer", "internal/driver/gvisor/platform", "internal/driver/gvisor/process"},
	"internal/driver/gvisor/layer":      {"internal/driver", "internal/sandbox"},
	"internal/driver/gvisor/ocilayer":   {"internal/driver", "internal/sandbox"},
	"internal/driver/gvisor/platform":   {"internal/driver/gvisor/process", "internal/durable"},
	"internal/driver/gvisor/process":    {},
	"internal/driver/gvisor/saved":      {"internal/sandbox", "internal/driver", "internal/durable", "internal/driver/gvisor/agentimage", "internal/driver/gvisor/chunksum", "internal/driver/gvisor/layer", "internal/driver/gvisor/platform"},
	"internal/driver/fake":              {"internal/driver", "internal/sandbox", "internal/agent"},
	"internal/driver/drivertest":        {"internal/driver", "internal/sandbox", "internal/agentapi"},
	"internal/driver/remote":            {"internal/driver", "internal/ballast", "internal/durable", "internal/fairsem", "internal/sandbox", "internal/broadcast", "internal/retry", "internal/sparse", "internal/driver/remote/rootcache", "internal/image/stack"},
	"internal/driver/remote/rootcache":  {"internal/sandbox", "internal/ballast", "internal/image/integrity", "internal/image/stack"},
	"internal/driver/remote/remotetest": {"internal/ballast", "internal/driver", "internal/driver/remote", "internal/driver/remote/rootcache", "internal/sandbox", "internal/worker"},
	"internal/kubernetes":               {"internal/broadcast", "internal/driver/fleet", "internal/fairsem", "internal/sandbox", "internal/worker"},
	"internal/driver/fleet":             {"internal/broadcast", "internal/driver", "internal/driver/remote", "internal/sandbox", "internal/worker"},
	"internal/worker":                   {"internal/sandbox", "internal/durable", "internal/retry", "internal/statedir"},

	// A whole server for the tests of the HTTP interfaces.
	"internal/api/apitest": {"internal/image/stack", "internal/prepare", "internal/quota", "internal/store/imagerows", "internal/webhook",
		"internal/sandbox", "internal/audit", "internal/lifecycle", "internal/auth", "internal/store", "internal/proxy", "internal/stream",
		"internal/driver", "internal/driver/fake", "internal/driver/fleet", "internal/driver/remote", "internal/driver/remote/rootcache", "internal/worker", "internal/forward", "internal/api", "internal/registry", "internal/snapshot", "internal/secret", "internal/image", "internal/mcphttp", "internal/server/services", "internal/image/phase", "internal/image/spec",
	},

	"internal/dialect/e2b/template": {"internal/sandbox", "internal/background", "internal/build", "internal/image", "internal/image/reference", "internal/image/spec", "internal/spool"},
}

// wiring packages may import everything.
var wiring = []string{"internal/server", "internal/doctor", "bench", "test", "examples"}

// row returns the longest entry of names that is path or a parent of it.
func row(path string, names []string) (string, bool) {
	best, found := "", false
	for _, n := range names {
		if (path == n || strings.HasPrefix(path, n+"/")) && len(n) > len(best) {
			best, found = n, true
		}
	}
	return best, found
}

func TestImportDirection(t *testing.T) {
	all := append(slices.Collect(maps.Keys(mayImport)), wiring...)
	found := map[string]bool{}           // rows that have packages
	used := map[string]map[string]bool{} // by row, the rows that it imports
	for _, p := range packages(t) {
		name, ok := row(p.path, all)
		if !ok {
			t.Errorf("package %s is not in the import table; decide what it may import", p.path)
			continue
		}
		found[name] = true
		if slices.Contains(wiring, name) {
			continue
		}
		for _, target := range p.imports() {
			targetRow, _ := row(target, all)
			if targetRow != name && !slices.Contains(mayImport[name], targetRow) {
				t.Errorf("%s imports %s, which its row in the import table does not allow", p.path, target)
			}
			if used[name] == nil {
				used[name] = map[string]bool{}
			}
			used[name][targetRow] = true
		}
	}
	for _, name := range all {
		if !found[name] {
			t.Errorf("row %s of the import table has no package: remove it", name)
		}
		for _, target := range mayImport[name] {
			if !used[name][target] {
				t.Errorf("row %s of the import table allows %s, which no package of the row imports: remove it", name, target)
			}
		}
	}
}

func TestPackageComments(t *testing.T) {
	for _, p := range packages(t) {
		n := 0
		for _, f := range p.files {
			if f.syntax.Doc != nil && len(f.syntax.Doc.List) > 0 && !f.generated {
				n++
			}
		}
		if n != 1 {
			t.Errorf("package %s has %d package comments, want 1", p.path, n)
		}
	}
}

// imports returns the packages of ours that the package imports, by path, without duplicates.
func (p *pkg) imports() []string {
	paths := map[string]bool{}
	for _, f := range p.files {
		for _, spec := range f.syntax.Imports {
			if target, ours := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), module); ours {
				paths[target] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(paths))
}
