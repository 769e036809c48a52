package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// The addresses of a cluster. The network of its namespace is its own, so that clusters do not disturb each other.
const (
	nodes       = 2
	hubAddress  = "10.240.0.1"    // of the hub, on the bridge between hub and nodes
	podNetwork  = "10.244.0.0/16" // a node has a /24 of it
	services    = "10.96.0.0/16"
	apiService  = "10.96.0.1"
	apiServer   = "https://" + hubAddress + ":6443"
	domain      = "cluster.local"
	bootTimeout = 5 * time.Minute // a machine may be slow or busy
)

func nodeName(n int) string    { return fmt.Sprintf("node-%d", n+1) }
func nodeAddress(n int) string { return fmt.Sprintf("10.240.0.%d", 11+n) }
func nodePods(n int) string    { return fmt.Sprintf("10.244.%d.0/24", 1+n) }

// hub is the first process of a cluster's namespaces. It starts etcd, the API server, the controllers, the scheduler and the nodes in a
// directory, runs a command when all nodes are ready, and returns the command's exit code.
func hub(args []string) (code int, err error) {
	dir := args[0]
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	logs := filepath.Join(dir, "logs")
	for _, d := range []string{logs, filepath.Join(dir, "bin")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return 1, err
		}
	}
	h := &cluster{dir: dir, processes: newProcesses(logs), failed: make(chan error, 16)}
	ctx, cancel := context.WithTimeout(context.Background(), bootTimeout)
	defer cancel()
	began := time.Now()
	booted := make(chan error, 1)
	go func() { booted <- h.boot(ctx) }()
	select {
	case err = <-booted:
	case err = <-h.failed:
	case s := <-signals:
		err = fmt.Errorf("ended by a signal: %v", s)
	}
	if err != nil {
		return 1, err
	}
	fmt.Fprintf(os.Stderr, "kube: a cluster of %d nodes is ready after %.1f s; its directory is %s\n", nodes, time.Since(began).Seconds(), dir)
	return h.command(args[1:], signals)
}

// cluster is a cluster that runs in the namespaces of this process.
type cluster struct {
	dir       string
	self      string // this executable
	processes *processes
	failed    chan error // processes that have ended
	nodes     []*os.Process
}

// boot starts everything, and returns when the nodes are ready.
func (c *cluster) boot(ctx context.Context) error {
	var err error
	if c.self, err = os.Executable(); err != nil {
		return err
	}
	// Processes find themselves in /proc, and the sockets of other clusters are not in /run.
	if err := errors.Join(mount("proc", "/proc", "proc", 0), mount("tmpfs", "/run", "tmpfs", 0)); err != nil {
		return err
	}
	if err := os.Symlink(c.self, filepath.Join(c.dir, "bin", "kubectl")); err != nil {
		return err
	}
	for _, line := range []string{
		"link set lo up", "link add hub type bridge", "addr add " + hubAddress + "/24 dev hub", "link set hub up",
		"route add " + services + " via " + nodeAddress(0), // kube-proxy of a node translates
	} {
		if err := c.processes.run("network", "ip", strings.Fields(line)...); err != nil {
			return err
		}
	}
	if err := sysctl("net/ipv4/ip_forward", "1"); err != nil {
		return err
	}
	if err := c.certificates(); err != nil {
		return err
	}
	for n := range nodes {
		if err := c.startNode(n); err != nil {
			return err
		}
	}
	if err := c.control(ctx); err != nil {
		return err
	}
	if err := errors.Join(c.serveDNS(ctx), c.serveVolumes(ctx)); err != nil {
		return err
	}
	return c.ready(ctx)
}

// control starts the control plane.
func (c *cluster) control(ctx context.Context) error {
	const etcd = "http://127.0.0.1:2379"
	file := func(name string) string { return filepath.Join(c.dir, name) }
	kubeconfig := func(name string) string { return "--kubeconfig=" + file(name+".kubeconfig") }
	for _, p := range [][]string{
		{
			"etcd", "--data-dir=" + file("etcd"), "--listen-client-urls=" + etcd, "--advertise-client-urls=" + etcd,
			"--listen-peer-urls=http://127.0.0.1:2380", "--unsafe-no-fsync", "--log-level=warn",
		},
		{
			"kube-apiserver", "--etcd-servers=" + etcd, "--secure-port=6443", "--advertise-address=" + hubAddress,
			"--tls-cert-file=" + file("apiserver.crt"), "--tls-private-key-file=" + file("apiserver.key"), "--client-ca-file=" + file("ca.crt"),
			"--service-cluster-ip-range=" + services, "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
			"--service-account-issuer=https://kubernetes.default.svc." + domain,
			"--service-account-key-file=" + file("service-accounts.crt"), "--service-account-signing-key-file=" + file("service-accounts.key"),
			"--kubelet-certificate-authority=" + file("ca.crt"),
			"--kubelet-client-certificate=" + file("admin.crt"), "--kubelet-client-key=" + file("admin.key"),
			"--kubelet-preferred-address-types=InternalIP",
		},
		{
			"kube-controller-manager", kubeconfig("kube-controller-manager"), "--bind-address=127.0.0.1", "--leader-elect=false",
			"--service-account-private-key-file=" + file("service-accounts.key"), "--root-ca-file=" + file("ca.crt"), "--use-service-account-credentials",
			// The loss of a node is noticed soon.
			"--node-monitor-period=1s", "--node-monitor-grace-period=15s",
		},
		{"kube-scheduler", kubeconfig("kube-scheduler"), "--bind-address=127.0.0.1", "--leader-elect=false"},
	} {
		if err := c.processes.serve(c.failed, p[0], c.self, p...); err != nil {
			return err
		}
		if p[0] == "kube-apiserver" {
			if err := c.answers(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// client returns a client with all rights.
func (c *cluster) client() (*kubernetes.Clientset, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig())
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

func (c *cluster) kubeconfig() string { return filepath.Join(c.dir, "admin.kubeconfig") }

// answers waits until the API server is ready.
func (c *cluster) answers(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	return poll(ctx, func(ctx context.Context) error {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

// ready waits until Pods can run on all nodes.
func (c *cluster) ready(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	return poll(ctx, func(ctx context.Context) error {
		if _, err := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", meta.GetOptions{}); err != nil {
			return err
		}
		list, err := client.CoreV1().Nodes().List(ctx, meta.ListOptions{})
		if err != nil {
			return err
		}
		ready := 0
		for _, node := range list.Items {
			if slices.ContainsFunc(node.Status.Conditions, func(c core.NodeCondition) bool { return c.Type == core.NodeReady && c.Status == core.ConditionTrue }) {
				ready++
			}
		}
		if ready < nodes {
			return fmt.Errorf("%d of %d nodes are ready", ready, nodes)
		}
		return nil
	})
}

// poll calls f until it succeeds.
func poll(ctx context.Context, f func(context.Context) error) error {
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %w", bootTimeout, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// command runs a command to its end, and returns its exit code.
func (c *cluster) command(argv []string, signals <-chan os.Signal) (code int, err error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	pids := make([]string, nodes)
	for n, p := range c.nodes {
		pids[n] = fmt.Sprint(p.Pid)
	}
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig(), "PATH="+filepath.Join(c.dir, "bin")+":"+os.Getenv("PATH"),
		"MODBOX_TEST_KUBE_ADDRESS="+hubAddress, "MODBOX_TEST_KUBE_NODES="+strings.Join(pids, " "))
	ended, err := c.processes.start(cmd)
	if err != nil {
		return 1, err
	}
	for {
		select {
		case status := <-ended:
			return exitCode(status), nil
		case s := <-signals:
			_ = cmd.Process.Signal(s) // it may have ended
		case err := <-c.failed: // a test may have ended a node
			fmt.Fprintln(os.Stderr, "kube:", err)
		}
	}
}

func exitCode(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// startNode starts a node, and connects it to the hub.
func (c *cluster) startNode(n int) error {
	name := nodeName(n)
	started, tell, err := os.Pipe()
	if err != nil {
		return err
	}
	defer started.Close()
	defer tell.Close()
	cmd := exec.Command(c.self, "node", c.dir, fmt.Sprint(n))
	cmd.Stdin = started
	cmd.SysProcAttr = &unix.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNET}
	ended, err := c.processes.logged(name, cmd)
	if err != nil {
		return err
	}
	c.nodes = append(c.nodes, cmd.Process)
	go func() {
		<-ended
		c.failed <- fmt.Errorf("%s has ended: %s", name, c.processes.last(name))
	}()
	for _, line := range []string{
		fmt.Sprintf("link add %s type veth peer name eth0 netns %d", name, cmd.Process.Pid),
		fmt.Sprintf("link set %s master hub up", name),
		fmt.Sprintf("route add %s via %s", nodePods(n), nodeAddress(n)),
	} {
		if err := c.processes.run("network", "ip", strings.Fields(line)...); err != nil {
			return err
		}
	}
	_, err = io.WriteString(tell, "connected\n")
	return err
}

func mount(source, target, kind string, flags uintptr) error {
	if err := unix.Mount(source, target, kind, flags, ""); err != nil {
		return fmt.Errorf("mount %s: %w", target, err)
	}
	return nil
}

func sysctl(name, value string) error { return os.WriteFile("/proc/sys/"+name, []byte(value), 0) }
