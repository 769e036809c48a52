package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/proxy"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// editorServer is a server as editors install it: it says where it listens, a port and a Unix socket on which only its
// user may connect, and answers what it is sent, in capital letters.
const editorServer = `
import os, socketserver, threading
class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(line.upper())
class TCP(socketserver.ThreadingTCPServer): daemon_threads = True
class Unix(socketserver.ThreadingUnixStreamServer): daemon_threads = True
tcp = TCP(("127.0.0.1", 0), Echo)
os.umask(0o177)
unix = Unix(os.path.expanduser("~/.editor/server.sock"), Echo)
threading.Thread(target=unix.serve_forever, daemon=True).start()
print(f"listeningOn=={tcp.server_address[1]}==", flush=True)
tcp.serve_forever()
`

// bootstrap is the script that an editor sends to the shell of its first session: it looks at the machine, installs a server
// unless it is there, starts it in the background, waits until the log tells the port, and prints a report. The session
// stays open for as long as the editor's window.
const bootstrap = `
set -u
umask 077
DIR="$HOME/.editor"
mkdir -p "$DIR"
if ! command -v python3 >/dev/null; then echo "editor: no python3"; exit 1; fi
cat > "$DIR/server.py" <<'SERVER'
` + editorServer + `SERVER
nohup python3 "$DIR/server.py" > "$DIR/log" 2>&1 < /dev/null &
echo $! > "$DIR/pid"
for i in $(seq 600); do
	if grep -q '^listeningOn==' "$DIR/log"; then break; fi
	sleep 0.1
done
echo "editor: start"
echo "platform==$(uname -s)=="
echo "home==$HOME=="
grep '^listeningOn==' "$DIR/log"
echo "editor: end"
`

// TestSSHEditor does with OpenSSH what VS Code's Remote-SSH does: a connection with a SOCKS proxy, whose first session is a
// shell without a terminal that is sent a script; a server in the sandbox that this script starts; more sessions on the same
// connection, some of which stay; and forwarded ports and Unix sockets of that server.
func TestSSHEditor(t *testing.T) {
	s := testserver.Start(t, "--ssh-listen", "127.0.0.1:0")
	sb := s.MustCreate(client.CreateOptions{Name: "box"})
	ssh := openSSH(t, s, "box")
	control := filepath.Join(ssh.dir, "c")
	socks := freePort(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	master := ssh.command(ctx, "ssh", "-T", "-M", "-S", control, "-D", socks, "-o", "ConnectTimeout=60", ssh.login, "bash")
	var said bytes.Buffer // read after its end
	master.Stderr = &said
	shell, stdout := start(t, master)
	go func() { _, _ = io.WriteString(shell, bootstrap) }()
	report := readReport(t, bufio.NewReader(stdout))
	if report["platform"] != "Linux" || report["home"] == "" || report["listeningOn"] == "" {
		t.Fatalf("the script reports %v", report)
	}

	// The editor's own connections go through the SOCKS proxy.
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			through, err := proxy.SOCKS5("tcp", socks, nil, proxy.Direct)
			if err != nil {
				t.Error(err)
				return
			}
			conn, err := through.Dial("tcp", "localhost:"+report["listeningOn"])
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			answers(t, fmt.Sprintf("proxy %d", i), conn, conn)
		})
	}
	// More sessions on the connection: commands that end, and a conversation, as with the exec server of the editor.
	for i := range 8 {
		group.Go(func() {
			if got := ssh.must("ssh", "", "-S", control, ssh.login, fmt.Sprintf("echo session %d; cat ~/.editor/pid > /dev/null", i)); got != fmt.Sprintf("session %d\n", i) {
				t.Errorf("session %d: %q", i, got)
			}
		})
	}
	group.Go(func() {
		// Not the shell's read, which reads a megabyte by a million system calls.
		c := ssh.command(ctx, "ssh", "-T", "-S", control, ssh.login, `python3 -u -c "import sys; [print(line.upper(), end='') for line in sys.stdin]"`)
		in, out := start(t, c)
		answers(t, "a session that stays", in, out)
		_ = in.Close()
		if err := c.Wait(); err != nil {
			t.Error(err)
		}
	})
	group.Wait()

	// Ports and sockets that are forwarded on the open connection.
	socket := report["home"] + "/.editor/server.sock"
	forward := func(local, inside string) {
		t.Helper()
		ssh.must("ssh", "", "-S", control, "-O", "forward", "-L", local+":"+inside, ssh.login)
	}
	for i, inside := range []string{"localhost:" + report["listeningOn"], socket} {
		port, local := freePort(t), filepath.Join(ssh.dir, fmt.Sprintf("s%d", i))
		forward(port, inside)
		forward(local, inside)
		for range 4 {
			group.Go(func() { answersAt(t, "tcp", port) })
			group.Go(func() { answersAt(t, "unix", local) })
		}
	}
	group.Wait()

	// Sockets that are not there, and that the user may not use.
	s.Bash(sb.ID, `sudo python3 -c 'import os, socket; os.umask(0o177); socket.socket(socket.AF_UNIX).bind("/tmp/root.sock")'`, time.Minute)
	for _, inside := range []string{"/tmp/none.sock", "/tmp/root.sock"} {
		port := freePort(t)
		forward(port, inside)
		conn, err := net.Dial("tcp", port)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(conn); len(b) > 0 || err != nil {
			t.Errorf("%s sent %q, %v", inside, b, err)
		}
		conn.Close()
	}

	// The first session ends by itself. As with OpenSSH, the server in its background goes on, and the next window finds it.
	_ = shell.Close()
	if err := master.Wait(); err != nil {
		t.Errorf("the first session ended with %v", err)
	}
	for _, reason := range []string{"none.sock: connect: no such file or directory", "root.sock: connect: permission denied"} {
		if !strings.Contains(said.String(), reason) {
			t.Errorf("OpenSSH does not say %q: %s", reason, said.String())
		}
	}
	if got := ssh.must("ssh", "again\n", "-W", "localhost:"+report["listeningOn"], ssh.login); got != "AGAIN\n" {
		t.Errorf("the server after its session says %q", got)
	}
}

// readReport reads what bootstrap prints.
func readReport(t *testing.T, out *bufio.Reader) map[string]string {
	t.Helper()
	report := map[string]string{}
	for {
		line, err := out.ReadString('\n')
		if err != nil {
			t.Fatalf("after %v: %v", report, err)
		}
		if line == "editor: end\n" {
			return report
		}
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "=="); ok {
			report[name] = strings.TrimSuffix(value, "==")
		}
	}
}

// start starts a program and returns its stdin and stdout.
func start(t *testing.T, c *exec.Cmd) (io.WriteCloser, io.Reader) {
	t.Helper()
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return in, out
}

// answersAt connects with a forwarded port or socket.
func answersAt(t *testing.T, network, address string) {
	t.Helper()
	conn, err := net.Dial(network, address)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	answers(t, address, conn, conn)
}

// answers has a conversation with the server, with short messages and then a megabyte in one piece.
func answers(t *testing.T, name string, in io.Writer, out io.Reader) {
	t.Helper()
	lines := bufio.NewReader(out)
	for _, message := range []string{"one", "two", strings.Repeat("three-", 1<<17)} {
		written := make(chan error, 1)
		go func() {
			_, err := io.WriteString(in, message+"\n")
			written <- err
		}()
		got, err := lines.ReadString('\n')
		if got != strings.ToUpper(message)+"\n" || err != nil {
			t.Errorf("%s: %d bytes came for %d, %v", name, len(got), len(message)+1, err)
			return
		}
		if err := <-written; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
