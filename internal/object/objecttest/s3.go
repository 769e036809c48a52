// Package objecttest starts a real S3 server for tests.
package objecttest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// Variable names the program of the server, test/s3server. scripts/with-s3.sh sets it.
const Variable = "MODBOX_TEST_S3"

// Server is a server with one bucket.
type Server struct {
	t       *testing.T
	program string
	address string
	dir     string
	cmd     *exec.Cmd
}

// AccessKey and SecretKey are the credentials of the server.
const AccessKey, SecretKey = "modbox", "modbox-secret"

// Start starts a server, which ends with the test, and sets the credentials in the environment. It skips the test when
// there is no program.
func Start(t *testing.T) *Server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return StartAt(t, l.Addr().String())
}

// StartAt is [Start] with an address.
func StartAt(t *testing.T, address string) *Server {
	t.Helper()
	program := os.Getenv(Variable)
	if program == "" {
		t.Skipf("%s is not set; the suite s3 runs this test", Variable)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", SecretKey)
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none")) // nothing of the user
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
	s := &Server{t: t, program: program, address: address, dir: t.TempDir()}
	for _, dir := range []string{"attributes", "buckets/bucket"} {
		if err := os.MkdirAll(filepath.Join(s.dir, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s.Launch()
	t.Cleanup(s.Kill)
	return s
}

// URL returns the URL of a prefix of the bucket.
func (s *Server) URL(prefix string) string {
	return fmt.Sprintf("s3://bucket/%s?region=us-east-1&use_path_style=true&endpoint=http://%s", prefix, s.address)
}

// Path returns the file with the content of an object.
func (s *Server) Path(key string) string { return filepath.Join(s.dir, "buckets/bucket", key) }

// Launch starts the server again, with the same bucket at the same address, and waits until it listens.
func (s *Server) Launch() {
	s.t.Helper()
	s.cmd = exec.Command(s.program, s.address, s.dir)
	s.cmd.Stderr = os.Stderr
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) { // polling another process
		c, err := net.Dial("tcp", s.address)
		if err == nil {
			_ = c.Close()
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("the S3 server does not listen: %v", err)
		}
	}
}

// Kill kills the server.
func (s *Server) Kill() {
	if s.cmd.ProcessState == nil {
		_ = s.cmd.Process.Kill() // it may have ended
		_ = s.cmd.Wait()         // it was killed
	}
}
