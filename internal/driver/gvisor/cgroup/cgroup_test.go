package cgroup_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/driver/gvisor/cgroup"
)

func TestParseHost(t *testing.T) {
	for _, c := range []struct {
		name, mounts, own string
		want              cgroup.Host
	}{{
		name:   "unified",
		mounts: "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
		own:    "0::/system.slice/modbox.service\n",
		want: cgroup.Host{
			V2: "/sys/fs/cgroup", V1: map[string]string{}, Own: map[string]string{"": "/system.slice/modbox.service"},
		},
	}, {
		name: "hybrid",
		mounts: `31 23 0:27 / /sys/fs/cgroup/memory rw shared:5 - cgroup cgroup rw,memory
32 23 0:28 / /sys/fs/cgroup/cpu,cpuacct rw shared:6 - cgroup cgroup rw,cpu,cpuacct
33 23 0:29 / /sys/fs/cgroup/unified rw shared:7 - cgroup2 cgroup2 rw
34 23 0:30 / /sys/fs/cgroup/systemd rw shared:8 - cgroup cgroup rw,name=systemd
`,
		own: "9:memory:/user\n3:cpu,cpuacct:/\n0::/user\n",
		want: cgroup.Host{
			V1:  map[string]string{"memory": "/sys/fs/cgroup/memory", "cpu": "/sys/fs/cgroup/cpu,cpuacct", "cpuacct": "/sys/fs/cgroup/cpu,cpuacct"},
			Own: map[string]string{"memory": "/user", "cpu": "/", "cpuacct": "/", "": "/user"},
		},
	}, {
		name:   "insideAContainer",
		mounts: "30 23 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup rw\n",
		own:    "0::/docker/abc/init\n",
		want:   cgroup.Host{V2: "/sys/fs/cgroup", V1: map[string]string{}, Own: map[string]string{"": "/init"}},
	}, {
		name: "none", mounts: "garbage\n1 2 - \n", own: "garbage\n",
		want: cgroup.Host{V1: map[string]string{}, Own: map[string]string{}},
	}} {
		t.Run(c.name, func(t *testing.T) {
			got, err := cgroup.ParseHost(strings.NewReader(c.mounts), strings.NewReader(c.own))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("ParseHost (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNoControlGroups(t *testing.T) {
	if _, err := (cgroup.Host{}).Open("", "modbox-test"); err == nil {
		t.Error("Open succeeded on a host without control groups")
	}
}

// fakeV2 makes a directory that looks like a unified hierarchy with a parent
// group that was given controllers.
func fakeV2(t *testing.T, controllers string) (host cgroup.Host, base string) {
	t.Helper()
	root := t.TempDir()
	base = filepath.Join(root, "modbox-test")
	for _, dir := range []string{root, base} {
		put(t, dir, map[string]string{"cgroup.controllers": controllers, "cgroup.subtree_control": controllers})
	}
	return cgroup.Host{V2: root, Own: map[string]string{"": "/"}}, base
}

func put(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func content(t *testing.T, elem ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

func TestV2Usage(t *testing.T) {
	host, base := fakeV2(t, "cpu memory pids")
	p, err := host.Open("/", "modbox-test")
	if err != nil {
		t.Fatal(err)
	}
	if want := (cgroup.Controllers{Memory: true, CPU: true, Processes: true}); p.Controllers() != want {
		t.Errorf("Controllers = %+v, want %+v", p.Controllers(), want)
	}
	put(t, filepath.Join(base, "box"), map[string]string{
		"memory.current": "5000\n",
		"memory.stat":    "anon 100\n" + strings.Repeat("another_key 5\n", 1000) + "inactive_file 1000\nactive_file 7\n",
		"memory.events":  "low 0\noom 3\noom_kill 2\n",
		"cpu.stat":       "usage_usec 77\nuser_usec 50\n",
		"pids.current":   "12\n",
		"cgroup.procs":   "10\n11\n",
	})
	g := p.Group("box")
	u, err := g.Usage()
	if err != nil {
		t.Fatal(err)
	}
	if want := (cgroup.Usage{MemoryBytes: 4000, CPUNanos: 77000, Processes: 12, OOMKills: 2}); u != want {
		t.Errorf("Usage = %+v, want %+v", u, want)
	}
	pids, err := g.Processes()
	if diff := cmp.Diff([]int{10, 11}, pids); err != nil || diff != "" {
		t.Errorf("Processes: %v\n%s", err, diff)
	}
	ids, err := p.List()
	if diff := cmp.Diff([]string{"box"}, ids); err != nil || diff != "" {
		t.Errorf("List: %v\n%s", err, diff)
	}
	if err := g.Start(func(attr *syscall.SysProcAttr) error {
		if !attr.UseCgroupFD {
			t.Error("Start does not have the kernel put the process into the group")
		}
		return nil
	}); err != nil {
		t.Errorf("Start: %v", err)
	}
}

func TestV2Limits(t *testing.T) {
	host, base := fakeV2(t, "cpu memory pids")
	p, err := host.Open("/", "modbox-test")
	if err != nil {
		t.Fatal(err)
	}
	box := filepath.Join(base, "box")
	put(t, box, map[string]string{"memory.max": "", "memory.swap.max": "", "cpu.max": "", "pids.max": ""})
	if err := p.Group("box").Limit(cgroup.Limits{MemoryBytes: 1 << 30, CPUMilli: 1500, Processes: 99}); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"memory.max": "1073741824", "memory.swap.max": "0", "cpu.max": "150000 100000", "pids.max": "99",
	} {
		if got := content(t, box, file); got != want {
			t.Errorf("%s = %q, want %q", file, got, want)
		}
	}
}

func TestV1(t *testing.T) {
	root := t.TempDir()
	host := cgroup.Host{V1: map[string]string{}}
	files := map[string]map[string]string{
		"memory": {
			"memory.limit_in_bytes": "", "memory.memsw.limit_in_bytes": "", "memory.usage_in_bytes": "5000",
			"memory.stat": "cache 1\ntotal_inactive_file 2000\n", "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n",
		},
		"cpu":     {"cpu.cfs_period_us": "", "cpu.cfs_quota_us": ""},
		"cpuacct": {"cpuacct.usage": "123"},
		"pids":    {"pids.max": "", "pids.current": "7"},
	}
	for controller, content := range files {
		host.V1[controller] = filepath.Join(root, controller)
		put(t, filepath.Join(root, controller, "place", "modbox-test", "box"), content)
	}
	p, err := host.Open("/place", "modbox-test")
	if err != nil {
		t.Fatal(err)
	}
	g := p.Group("box")
	if err := g.Limit(cgroup.Limits{MemoryBytes: 1 << 30, CPUMilli: 1500, Processes: 99}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ controller, file, want string }{
		{"memory", "memory.limit_in_bytes", "1073741824"},
		{"memory", "memory.memsw.limit_in_bytes", "1073741824"},
		{"cpu", "cpu.cfs_period_us", "100000"},
		{"cpu", "cpu.cfs_quota_us", "150000"},
		{"pids", "pids.max", "99"},
	} {
		if got := content(t, host.V1[c.controller], "place", "modbox-test", "box", c.file); got != c.want {
			t.Errorf("%s = %q, want %q", c.file, got, c.want)
		}
	}
	u, err := g.Usage()
	if want := (cgroup.Usage{MemoryBytes: 3000, CPUNanos: 123, Processes: 7, OOMKills: 4}); err != nil || u != want {
		t.Errorf("Usage = %+v, %v; want %+v", u, err, want)
	}
}

// A directory made by Create has no control files in the fake, unlike in the kernel: Create fails
// at the first limit, and must leave nothing.
func TestV2CreateIsUndone(t *testing.T) {
	host, base := fakeV2(t, "cpu memory pids")
	p, err := host.Open("/", "modbox-test")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Group("box").Create(cgroup.Limits{MemoryBytes: 1 << 20}); err == nil {
		t.Fatal("Create succeeded without memory.max")
	}
	if _, err := os.Stat(filepath.Join(base, "box")); !os.IsNotExist(err) {
		t.Errorf("the group is left: %v", err)
	}
}

func TestV2PassesControllersOn(t *testing.T) {
	root := t.TempDir()
	base := filepath.Join(root, "service", "modbox-test")
	put(t, root, map[string]string{"cgroup.controllers": "cpu memory pids", "cgroup.subtree_control": "cpu memory pids"})
	put(t, filepath.Join(root, "service"), map[string]string{"cgroup.controllers": "memory", "cgroup.subtree_control": ""})
	put(t, base, map[string]string{"cgroup.controllers": "memory", "cgroup.subtree_control": ""})
	p, err := cgroup.Host{V2: root}.Open("service", "modbox-test")
	if err == nil {
		// The fake stores "+memory" as it was written; the kernel would return "memory".
		t.Errorf("Controllers = %+v, want none that the fake never turned on", p.Controllers())
	}
	for _, dir := range []string{filepath.Join(root, "service"), base} {
		if got := content(t, dir, "cgroup.subtree_control"); got != "+memory" {
			t.Errorf("%s passes on %q, want +memory", dir, got)
		}
	}
}

func TestV2WithoutControllers(t *testing.T) {
	host, _ := fakeV2(t, "")
	if p, err := host.Open("/", "modbox-test"); err == nil {
		t.Errorf("Open succeeded with %+v", p.Controllers())
	}
}

// real opens a parent in this host's own control groups.
func real(t *testing.T) *cgroup.Parent {
	t.Helper()
	if os.Getenv("MODBOX_TEST_GVISOR") != "1" {
		t.Skip("changes the host's control groups: set MODBOX_TEST_GVISOR=1")
	}
	host, err := cgroup.Detect()
	if err != nil {
		t.Fatal(err)
	}
	p, err := host.Open("", "modbox-test-"+strconv.Itoa(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Remove(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func TestRealGroup(t *testing.T) {
	p := real(t)
	g := p.Group("box")
	limits := cgroup.Limits{MemoryBytes: 64 << 20, CPUMilli: 500, Processes: 100}
	if err := g.Create(limits); err != nil {
		t.Fatal(err)
	}
	if err := g.Create(limits); err == nil {
		t.Error("a second Create succeeded")
	}
	var child *os.Process
	err := g.Start(func(attr *syscall.SysProcAttr) (err error) {
		child, err = os.StartProcess("/bin/sleep", []string{"sleep", "600"}, &os.ProcAttr{Sys: attr})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	pids, err := g.Processes()
	if err != nil || len(pids) == 0 {
		t.Fatalf("Processes = %v, %v", pids, err)
	}
	own, err := os.ReadFile("/proc/" + strconv.Itoa(child.Pid) + "/cgroup")
	if err != nil || !strings.Contains(string(own), "/box") {
		t.Errorf("the child's groups: %q, %v", own, err)
	}
	if u, err := g.Usage(); err != nil || u.Processes == 0 || u.OOMKills != 0 {
		t.Errorf("Usage = %+v, %v", u, err)
	}
	if err := g.Remove(t.Context()); err != nil {
		t.Errorf("Remove: %v", err)
	}
	if _, err := child.Wait(); err != nil {
		t.Errorf("Wait: %v", err)
	}
	if err := g.Remove(t.Context()); err != nil {
		t.Errorf("Remove again: %v", err)
	}
	if ids, err := p.List(); err != nil || len(ids) != 0 {
		t.Errorf("List = %v, %v", ids, err)
	}
}

// The kernel creates a process with its own namespaces directly in a group of version 2. A hybrid
// host also has such a hierarchy, without controllers.
func TestRealV2Start(t *testing.T) {
	if os.Getenv("MODBOX_TEST_GVISOR") != "1" {
		t.Skip("changes the host's control groups: set MODBOX_TEST_GVISOR=1")
	}
	mount := "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(mount, "unified", "cgroup.procs")); err == nil {
		mount = filepath.Join(mount, "unified")
	}
	p, err := cgroup.OpenUnified(mount, "modbox-test-v2-"+strconv.Itoa(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Remove(); err != nil {
			t.Error(err)
		}
	})
	g := p.Group("box")
	if err := g.Create(cgroup.Limits{}); err != nil {
		t.Fatal(err)
	}
	var child *os.Process
	err = g.Start(func(attr *syscall.SysProcAttr) (err error) {
		attr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET
		attr.UidMappings = []syscall.SysProcIDMap{{HostID: 65534, Size: 1}}
		child, err = os.StartProcess("/bin/sleep", []string{"sleep", "600"}, &os.ProcAttr{Sys: attr})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.ReadFile("/proc/" + strconv.Itoa(child.Pid) + "/cgroup")
	if err != nil || !strings.Contains(string(own), "0::/modbox-test-v2-"+strconv.Itoa(os.Getpid())+"/box") {
		t.Errorf("the child's groups: %q, %v", own, err)
	}
	if err := g.Remove(t.Context()); err != nil {
		t.Errorf("Remove: %v", err)
	}
	if _, err := child.Wait(); err != nil {
		t.Errorf("Wait: %v", err)
	}
}
