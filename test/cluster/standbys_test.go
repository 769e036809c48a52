package cluster_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/store/storetest"
)

const (
	stormCallers = 3
	stormTime    = time.Minute
	// leastKills is the least number of servers that a storm kills, even if that takes longer than stormTime.
	leastKills = 4
	// mostOwned bounds the sandboxes of a caller.
	mostOwned = 2
	// callTime bounds a call during the storm: an answer may never come from a Pod that is gone.
	callTime = 30 * time.Second
)

// TestStandbys installs the chart with two servers and PostgreSQL, and updates and kills servers while clients call them.
func TestStandbys(t *testing.T) {
	s := installStandbys(t, "standbys", os.Getenv("MODBOX_TEST_CHART_STANDBYS"))
	s.in(t, "rollout", "status", "--timeout", timeLimit.String(), "statefulset/modbox-worker")
	t.Run("update", s.update)
	t.Run("storm", s.storm)
}

// storm kills the active server again and again while clients call it.
func (s standbys) storm(t *testing.T) {
	c := s.Client

	var operations atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	all := make([]*stormCaller, stormCallers)
	for i := range all {
		all[i] = &stormCaller{c: c, random: rand.New(rand.NewPCG(seed, uint64(i+1))), done: &operations, counts: map[string]*count{}, ended: map[string]bool{}}
		wg.Go(func() {
			for ctx.Err() == nil {
				all[i].act(ctx)
			}
		})
	}
	kills, longest := 0, time.Duration(0)
	for end := time.Now().Add(stormTime); kills < leastKills || time.Now().Before(end); kills++ {
		answered := operations.Load()
		until(t, "calls are answered with success", func() bool { return operations.Load() >= answered+stormCallers })
		<-time.After(time.Duration(random.IntN(3000)) * time.Millisecond) // the moment is random on purpose: between any two steps of any of the calls
		longest = max(longest, s.takeOver(t))
	}
	cancel()
	wg.Wait()
	for _, caller := range all {
		caller.verify(t)
	}
	checkOrphans(t, c, filepath.Join(s.dir, "state"))
	t.Logf("%d kills, %d operations; after a kill the other server answered within %v", kills, operations.Load(), longest)
}

// standbys is an installation with several servers.
type standbys struct {
	*client.Client
	namespace string
	replicas  int    // the number of servers
	dir       string // the volume of the servers
	token     string // of an administrator
}

// in runs kubectl in the namespace of the servers.
func (s standbys) in(t *testing.T, args ...string) string {
	t.Helper()
	return kubectl(t, "", append([]string{"-n", s.namespace}, args...)...)
}

// active returns the Pod of the server that is active, when all servers are ready.
func (s standbys) active(t *testing.T) (pod string) {
	t.Helper()
	until(t, "all servers are ready, and a server is active", func() bool {
		pod = ""
		list := strings.Fields(s.in(t, "get", "pods", "-l", "app.kubernetes.io/component=server", "-o", `jsonpath={range .items[?(@.status.containerStatuses[0].ready==true)]}{.metadata.name}={.status.podIP} {end}`))
		for _, entry := range list {
			name, ip, _ := strings.Cut(entry, "=")
			if role(ip) == "active" {
				pod = name
			}
		}
		return len(list) == s.replicas && pod != ""
	})
	return pod
}

// role returns the role of the server in the Pod with an address; "" if it does not answer.
func role(ip string) string {
	c := http.Client{Timeout: 2 * time.Second}
	resp, err := c.Get("http://" + net.JoinHostPort(ip, "7070") + "/healthz")
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	var answer struct{ Role string }
	_ = json.NewDecoder(resp.Body).Decode(&answer) // "" if it is no JSON
	return answer.Role
}

// installStandbys installs the chart with two servers and PostgreSQL; the file has the objects of the chart.
func installStandbys(t *testing.T, namespace, file string) standbys {
	t.Helper()
	return installServers(t, namespace, file, 2)
}

// installServers is installStandbys with a number of servers.
func installServers(t *testing.T, namespace, file string, replicas int) standbys {
	t.Helper()
	address := address(t)
	manifest, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("the objects of the chart: %v", err)
	}
	startDatabase(t, address, "password-of-the-test")
	makeNamespace(t, namespace)
	apply(t, "{apiVersion: v1, kind: Secret, metadata: {name: database}, stringData: {password: password-of-the-test}}", "--namespace", namespace)
	// The rights are for a service account of the namespace for which the chart was rendered.
	apply(t, strings.ReplaceAll(string(manifest), "namespace: modbox\n", "namespace: "+namespace+"\n"), "--namespace", namespace)
	s := standbys{namespace: namespace, replicas: replicas, dir: serverVolume(t, namespace, "modbox-state")}
	importImage(t, namespace, s.active(t), s.dir, "modbox/base")
	token, err := os.ReadFile(filepath.Join(s.dir, "state/token"))
	if err != nil {
		t.Fatal(err)
	}
	s.token = strings.TrimSpace(string(token))
	s.Client, err = client.New("http://"+s.in(t, "get", "service", "modbox", "-o", "jsonpath={.spec.clusterIP}"), s.token)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// takeOver kills the active server, waits until the other answers, and returns after how long it does.
func (s standbys) takeOver(t *testing.T) time.Duration {
	t.Helper()
	pod := s.active(t)
	killServer(t, pod)
	killed := time.Now()
	s.in(t, "delete", "pod", pod, "--force", "--grace-period", "0") // else its container is started again later and later
	until(t, "the other server answers", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := s.Sandboxes.Get(ctx, "sbx-none")
		return client.IsCode(err, client.NotFound)
	})
	return time.Since(killed)
}

// startDatabase starts PostgreSQL for Pods.
func startDatabase(t *testing.T, address, password string) {
	t.Helper()
	server := storetest.StartCluster(t)
	db, err := sql.Open("pgx", server.URL("postgres"))
	if err == nil {
		_, err = db.ExecContext(t.Context(), "ALTER USER modbox PASSWORD '"+password+"'")
		_ = db.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	server.Stop("fast")
	server.Write("postgresql.auto.conf", "listen_addresses = '"+address+"'")
	server.Write("pg_hba.conf", "local all all trust\nhost all all all scram-sha-256")
	server.Start()
}

// killServer kills the server in a Pod.
func killServer(t *testing.T, pod string) {
	t.Helper()
	for _, dir := range processes("server", "--config") {
		name, err := os.ReadFile(filepath.Join(dir, "root/etc/hostname"))
		if err != nil || strings.TrimSpace(string(name)) != pod {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err == nil {
			err = unix.Kill(pid, unix.SIGKILL)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("no server runs in the Pod %s", pod)
}

// count bounds the counter of a sandbox: low is in an answer, and high also counts increments whose answer did not come.
type count struct{ low, high int }

// stormCaller makes calls one after the other and remembers the answers.
type stormCaller struct {
	c      *client.Client
	random *rand.Rand
	done   *atomic.Int64     // calls that were answered with success
	counts map[string]*count // of sandboxes that an answer said to exist, with a counter
	ended  map[string]bool   // an answer said that it is destroyed
	wrong  []string          // answers that contradict earlier answers
}

// told counts a call that was answered with success.
func (c *stormCaller) told(err error) bool {
	if err == nil {
		c.done.Add(1)
	}
	return err == nil
}

// act makes a call that the caller's random numbers choose.
func (c *stormCaller) act(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	ids := slices.Sorted(maps.Keys(c.counts))
	if len(ids) == 0 {
		c.create(ctx)
		return
	}
	id := ids[c.random.IntN(len(ids))]
	switch what := c.random.IntN(10); {
	case what < 1 && len(ids) < mostOwned:
		c.create(ctx)
	case what < 1:
		delete(c.counts, id)
		if _, err := c.c.Sandboxes.Delete(ctx, id); c.told(err) {
			c.ended[id] = true
		}
	case what < 3:
		_, err := c.c.Sandboxes.Pause(ctx, id)
		c.told(err)
	case what < 5:
		_, err := c.c.Sandboxes.Resume(ctx, id, client.ResumeOptions{Memory: client.MemoryRequire})
		c.told(err)
	default:
		_, err := c.increment(ctx, id)
		c.told(err)
	}
}

func (c *stormCaller) create(ctx context.Context) {
	sb, err := c.c.Sandboxes.Create(ctx, client.CreateOptions{Image: "modbox/base", Resources: client.Resources{Memory: "128Mi", Disk: "64Mi", CPU: "500m"}})
	if !c.told(err) {
		return
	}
	if _, err := c.c.Sandboxes.Exec(ctx, sb.ID, client.Command{Argv: []string{"/bin/bash", "-c", counter}, Timeout: callTime}); c.told(err) {
		c.counts[sb.ID] = &count{}
	}
}

// increment adds 1 to the number that a sandbox remembers. It takes turns with increments whose answer did not come.
func (c *stormCaller) increment(ctx context.Context, id string) (string, error) {
	count := c.counts[id]
	count.high++
	out, err := c.c.Sandboxes.Exec(ctx, id, client.Command{Argv: []string{"flock", "/tmp/lock", "/bin/bash", "-c", increment}, Timeout: callTime})
	if err != nil {
		return "", err
	}
	lines := strings.Fields(string(out.Stdout))
	text := strings.Join(lines[max(0, len(lines)-1):], "") // gVisor keeps what a killed increment has not read of a FIFO
	n, err := strconv.Atoi(text)
	if err != nil || n <= count.low || n > count.high {
		c.wrong = append(c.wrong, fmt.Sprintf("the counter of sandbox %s is %q (%s), want more than %d and at most %d", id, text, out.Stderr, count.low, count.high))
		return text, nil
	}
	count.low = n
	return text, nil
}

// verify checks that everything holds that was answered with success.
func (c *stormCaller) verify(t *testing.T) {
	t.Helper()
	for id := range c.counts {
		if _, err := c.increment(t.Context(), id); err != nil {
			sb, _ := c.c.Sandboxes.Get(t.Context(), id)
			t.Errorf("lost: sandbox %s: %v; it is %+v", id, err, sb)
		}
	}
	for id := range c.ended {
		if sb, err := c.c.Sandboxes.Get(t.Context(), id); err != nil && !client.IsCode(err, client.NotFound) || err == nil && sb.State != client.Destroyed {
			t.Errorf("lost: the end of sandbox %s: %+v, %v", id, sb, err)
		}
	}
	for _, what := range c.wrong {
		t.Errorf("lost: %s", what)
	}
}

// checkOrphans waits until each sandbox runs or is paused, destroys all, and checks that no box and no file of a saved state remains.
func checkOrphans(t *testing.T, c *client.Client, stateDir string) {
	t.Helper()
	workers := processes("worker", "--join=modbox-join:7071")
	if len(workers) != 2 {
		t.Fatalf("%d workers run, want 2", len(workers))
	}
	boxes := func() (n int) {
		t.Helper()
		for _, dir := range workers {
			entries, err := os.ReadDir(filepath.Join(dir, "root/run/modbox/run/boxes"))
			if err != nil {
				t.Fatal(err)
			}
			n += len(entries)
		}
		return n
	}
	if boxes() == 0 {
		t.Fatal("the workers have no boxes before the sandboxes are destroyed")
	}
	until(t, "every sandbox runs or is paused, and can be destroyed", func() bool {
		left := 0
		for sb, err := range c.Sandboxes.List(client.ListOptions{}).All(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			left++
			if sb.State == client.Running || sb.State == client.Paused {
				if _, err := c.Sandboxes.Delete(t.Context(), sb.ID); err != nil {
					t.Errorf("delete: %v", err)
				}
			}
		}
		return left == 0
	})
	until(t, "workers have no boxes, and the server no saved states", func() bool {
		files, _ := exec.Command("find", filepath.Join(stateDir, "checkpoints"), filepath.Join(stateDir, "spool"), "-type", "f").Output() // some may vanish meanwhile
		return boxes() == 0 && len(files) == 0
	})
}
