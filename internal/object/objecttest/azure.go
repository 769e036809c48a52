package objecttest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
)

// AzureVariable names the program of a server with the interface of Azure Blob Storage, Azurite (test/azurite). The suite s3 sets it.
const AzureVariable = "MODBOX_TEST_AZURE"

// The account of every Azurite, whose key is public.
const (
	azureAccount = "devstoreaccount1"
	azureKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// Azure is a server with one container.
type Azure struct {
	t       *testing.T
	program string
	address string
	dir     string
	cmd     *exec.Cmd
}

// StartAzure starts a server, which ends with the test, and sets the credentials in the environment. It skips the test when
// there is no program.
func StartAzure(t *testing.T) *Azure {
	t.Helper()
	program := os.Getenv(AzureVariable)
	if program == "" {
		t.Skipf("%s is not set; the suite s3 runs this test", AzureVariable)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AZURE_STORAGE_ACCOUNT", azureAccount)
	t.Setenv("AZURE_STORAGE_KEY", azureKey)
	for _, name := range []string{"AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGEBLOB_CONNECTIONSTRING"} {
		t.Setenv(name, "") // nothing of the user
	}
	s := &Azure{t: t, program: program, address: l.Addr().String(), dir: t.TempDir()}
	s.Launch()
	t.Cleanup(s.Stop)
	credential, err := container.NewSharedKeyCredential(azureAccount, azureKey)
	if err != nil {
		t.Fatal(err)
	}
	c, err := container.NewClientWithSharedKeyCredential(fmt.Sprintf("http://%s/%s/bucket", s.address, azureAccount), credential, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return s
}

// URL returns the URL of a prefix of the container.
func (s *Azure) URL(prefix string) string {
	return fmt.Sprintf("azblob://bucket/%s?storage_account=%s&protocol=http&localemu=true&domain=%s", prefix, azureAccount, s.address)
}

// Launch starts the server again, with the same container at the same address, and waits until it listens.
func (s *Azure) Launch() {
	s.t.Helper()
	host, port, err := net.SplitHostPort(s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	// It does not ask for versions of its interface that it does not know yet.
	s.cmd = exec.Command(s.program, "--blobHost", host, "--blobPort", port, "--location", s.dir, "--skipApiVersionCheck", "--silent", "--disableTelemetry")
	s.cmd.Stderr = os.Stderr
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	for {
		c, err := net.Dial("tcp", s.address)
		if err == nil {
			_ = c.Close()
			return
		}
		select {
		case <-time.After(10 * time.Millisecond): // polling another process
		case <-ctx.Done():
			s.t.Fatalf("the server does not listen: %v", err)
		}
	}
}

// Stop ends the server in an orderly way: after SIGKILL Azurite has forgotten its last objects.
func (s *Azure) Stop() {
	if s.cmd.ProcessState == nil {
		_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		_ = s.cmd.Wait()                          // how it ended does not matter
	}
}
