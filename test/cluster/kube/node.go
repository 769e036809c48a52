package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// pauseImage is the image of the container that holds the namespaces of a Pod.
const pauseImage = "docker.io/library/pause:test"

// node is the first process of the namespaces of a node. It runs containerd, kubelet and kube-proxy, and ends when one of them
// ends. When it is killed, all processes of the node end, as when a machine loses power.
func node(args []string) (code int, err error) {
	dir := args[0]
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return 1, err
	}
	// The hub connects the network.
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return 1, fmt.Errorf("wait for the network: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	m := &machine{n: n, dir: filepath.Join(dir, nodeName(n)), cluster: dir, processes: newProcesses(filepath.Join(dir, "logs"))}
	for _, prepare := range []func() error{m.directories, m.network, m.files} {
		if err := prepare(); err != nil {
			return 1, err
		}
	}
	failed := make(chan error, 3)
	if err := m.processes.serve(failed, m.log("containerd"), "containerd", "--config", m.file("containerd.toml")); err != nil {
		return 1, err
	}
	if err := m.load(); err != nil {
		return 1, err
	}
	kubeconfig := "--kubeconfig=" + filepath.Join(dir, nodeName(n)+".kubeconfig")
	for _, p := range [][]string{
		{"kubelet", kubeconfig, "--config=" + m.file("kubelet.yaml"), "--hostname-override=" + nodeName(n), "--node-ip=" + nodeAddress(n)},
		{
			"kube-proxy", "--kubeconfig=" + filepath.Join(dir, "kube-proxy.kubeconfig"), "--proxy-mode=nftables", "--hostname-override=" + nodeName(n), "--cluster-cidr=" + podNetwork,
			"--oom-score-adj=0", "--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0", // else the machine's settings change
		},
	} {
		if err := m.processes.serve(failed, m.log(p[0]), self, p...); err != nil {
			return 1, err
		}
	}
	return 1, <-failed
}

// machine is a node that runs in the namespaces of this process.
type machine struct {
	n         int
	dir       string // its files
	cluster   string // the cluster's files
	processes *processes
}

func (m *machine) log(program string) string { return nodeName(m.n) + "-" + program }
func (m *machine) file(name string) string   { return filepath.Join(m.dir, name) }
func (m *machine) ip(line string) error {
	return m.processes.run(m.log("network"), "ip", strings.Fields(line)...)
}
func (m *machine) write(name, s string) error { return os.WriteFile(m.file(name), []byte(s), 0o644) }

// directories gives the node the directories that programs of a node have fixed names for.
func (m *machine) directories() error {
	if err := errors.Join(mount("proc", "/proc", "proc", 0), mount("tmpfs", "/run", "tmpfs", 0), os.Mkdir(m.dir, 0o755)); err != nil {
		return err
	}
	for name, target := range map[string]string{"lib": "/var/lib", "log": "/var/log"} {
		if err := os.Mkdir(m.file(name), 0o755); err != nil {
			return err
		}
		if err := mount(m.file(name), target, "", unix.MS_BIND); err != nil {
			return err
		}
	}
	if err := errors.Join(os.MkdirAll("/var/lib/kubelet", 0o755), os.Mkdir("/var/log/pods", 0o755), os.Mkdir("/run/cni", 0o755)); err != nil {
		return err
	}
	// kubelet wants these values, and would set them for the whole machine.
	for name, value := range map[string]string{
		"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
		"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
	} {
		path := m.file(filepath.Base(name))
		if err := os.WriteFile(path, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := mount(path, "/proc/sys/"+name, "", unix.MS_BIND); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// network configures the network of the node.
func (m *machine) network() error {
	for _, line := range []string{
		"link set lo up", "addr add " + nodeAddress(m.n) + "/24 dev eth0", "link set eth0 up", "route add default via " + hubAddress,
	} {
		if err := m.ip(line); err != nil {
			return err
		}
	}
	for other := range nodes {
		if other != m.n {
			if err := m.ip("route add " + nodePods(other) + " via " + nodeAddress(other)); err != nil {
				return err
			}
		}
	}
	return sysctl("net/ipv4/ip_forward", "1")
}

// files writes the configuration of the node's programs.
func (m *machine) files() error {
	group := filepath.Join("/", filepath.Base(m.cluster), nodeName(m.n))
	certificate := filepath.Join(m.cluster, nodeName(m.n))
	return errors.Join(
		m.write("resolv.conf", ""),
		m.write("containerd.toml", `version = 2
oom_score = 0
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "`+pauseImage+`"
  restrict_oom_score_adj = true # the test may lack CAP_SYS_RESOURCE
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/run/cni"
`),
		os.WriteFile("/run/cni/pods.conflist", []byte(`{
  "cniVersion": "1.0.0", "name": "pods",
  "plugins": [{
    "type": "bridge", "bridge": "pods", "isGateway": true, "hairpinMode": true,
    "ipam": {"type": "host-local", "ranges": [[{"subnet": "`+nodePods(m.n)+`"}]], "routes": [{"dst": "0.0.0.0/0"}]}
  }]
}`), 0o644),
		m.write("kubelet.yaml", `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: `+filepath.Join(m.cluster, "ca.crt")+`}
authorization: {mode: Webhook}
tlsCertFile: `+certificate+`.crt
tlsPrivateKeyFile: `+certificate+`.key
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: `+group+`
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
localStorageCapacityIsolation: false
evictionHard: {memory.available: 100Mi} # the disk is the machine's
imageGCHighThresholdPercent: 100
volumePluginDir: /var/lib/kubelet/plugins-exec
resolvConf: `+m.file("resolv.conf")+`
clusterDNS: [`+hubAddress+`]
clusterDomain: `+domain+`
nodeLeaseDurationSeconds: 8
syncFrequency: 10s
`),
	)
}

// load imports the images of the cluster.
func (m *machine) load() error {
	files, err := filepath.Glob(filepath.Join(m.cluster, "images", "*.tar"))
	if err != nil {
		return err
	}
	for _, file := range files {
		name := "docker.io/library/" + strings.TrimSuffix(filepath.Base(file), ".tar") + ":test"
		err := m.processes.run(m.log("images"), "ctr", "--connect-timeout", "1m", "--namespace", "k8s.io", "images", "import", "--index-name", name, file)
		if err != nil {
			return err
		}
	}
	return nil
}
