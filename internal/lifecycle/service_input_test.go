package lifecycle_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/execution"
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// ownMemory is the memory that the calls to a sandbox may always use.
	ownMemory = 4 << 20
	// inputCost is the memory of a command with input before any input: a whole window, two frames,
	// and the fixed cost of every input.
	inputCost = agentapi.StreamWindow + 2*agentapi.MaxFrame + 160<<10
)

// given starts a command that reads as much as data and then lives on, and returns it
// when it has read that.
func (s *server) given(data []byte) *guest.Command {
	s.t.Helper()
	script := fmt.Sprintf("head -c %d | sha256sum; exec sleep 1000", len(data))
	c := s.startCommand("a", agentapi.Command{Argv: []string{"sh", "-c", script}, Stdin: true})
	wrote := make(chan error, 1)
	go func() {
		_, err := c.Write(data)
		wrote <- err
	}()
	var out []byte
	for !bytes.Contains(out, []byte("\n")) {
		f, err := c.Next()
		if err != nil {
			s.t.Fatal(err)
		}
		out = append(out, f.Data...)
	}
	if err := <-wrote; err != nil {
		s.t.Fatal(err)
	}
	if sum := sha256.Sum256(data); !bytes.HasPrefix(out, []byte(hex.EncodeToString(sum[:]))) {
		s.t.Errorf("the command has read something else: %s", out)
	}
	return c
}

// TestInputsShareMemory: the server retains input, to send it again, only as long as there is
// memory for it. All input arrives in any case.
func TestInputsShareMemory(t *testing.T) {
	const shared = 16 << 20
	e := newEnv(t)
	e.calls = agentapi.NewMemory(shared)
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "a"})
	data := make([]byte, 3<<20)
	rand.NewChaCha8([32]byte{2}).Read(data)
	var all []*guest.Command
	sum := 0
	for range 12 {
		all = append(all, s.given(data))
	}
	for _, c := range all {
		held, _ := c.KeptInput()
		sum += held
	}
	if most := shared + ownMemory; sum > most {
		t.Errorf("the inputs of %d commands hold %d bytes, want at most %d", len(all), sum, most)
	}
	for _, c := range all {
		_ = c.Close()
	}
	if held, _ := s.given(data).KeptInput(); held < agentapi.MaxInFlight {
		t.Errorf("when the others have ended an input keeps %d bytes, want %d", held, agentapi.MaxInFlight)
	}
}

// TestInputThatWasNotKept: a command whose input cannot be sent again after a
// checkpoint says so, and is not given a part of it.
func TestInputThatWasNotKept(t *testing.T) {
	const shared = 8 << 20
	e := newEnv(t)
	e.calls = agentapi.NewMemory(shared)
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "a"})
	c := s.startCommand("a", agentapi.Command{Argv: []string{"sleep", "1000"}, Stdin: true})
	// Another one leaves no memory for more than what every input has, but for streams.
	s.startCommand("a", agentapi.Command{
		Argv: []string{"sleep", "1000"}, Stdin: true, StdinReserved: ownMemory + shared/2 - 2*inputCost - 32<<10,
	})
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		_, _ = c.Write(make([]byte, 3<<20))
	}()
	failed := make(chan error, 1)
	go func() {
		_, err := c.Next()
		failed <- err
	}()
	// More is under way than the command's pipe takes.
	eventually(t, "much of the input is not kept", func() bool {
		_, start := c.KeptInput()
		return start >= 256<<10
	})
	if _, err := s.Checkpoints().Create(t.Context(), s.caller, "a", ""); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("Next() = %v, want code %s", err, sandbox.Unavailable)
	}
	<-wrote
}

// TestStdinIsRefused: stdin that its caller holds counts before the command starts.
func TestStdinIsRefused(t *testing.T) {
	e := newEnv(t)
	e.calls = agentapi.NewMemory(2 << 20)
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "a"})
	cmd := agentapi.Command{Argv: []string{"cat"}, Stdin: true, StdinReserved: 8 << 20}
	for range 3 { // a refusal leaves nothing behind
		if _, err := s.Guest().Exec(context.Background(), s.caller, "a", cmd); sandbox.CodeOf(err) != sandbox.QuotaExceeded {
			t.Errorf("Exec() = %v, want code %s", err, sandbox.QuotaExceeded)
		}
	}
	cmd.StdinReserved = 3 << 20
	s.startCommand("a", cmd)
}

// TestHeldOutput: what callers hold of the output of commands is bounded in sum, until
// the commands are closed.
func TestHeldOutput(t *testing.T) {
	e := newEnv(t)
	e.calls = agentapi.NewMemory(8 << 20)
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "a"})
	const piece = 1 << 20
	most := 0
	for range 3 { // closing one gives all back
		c := s.startCommand("a", agentapi.Command{Argv: []string{"true"}})
		n := 0
		for c.Reserve(piece) == nil && n <= 100 {
			n++
		}
		if err := c.Reserve(piece); sandbox.CodeOf(err) != sandbox.QuotaExceeded || 2*n < most || n > (ownMemory+8<<20)/piece {
			t.Errorf("%d pieces of 1 MiB were let through, then %v", n, err)
		}
		most = n
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if most == 0 {
		t.Error("nothing may be held")
	}
}

// TestOldInputIsGivenDuringThePurge gives a command an input stream that the purge is just removing as unused.
func TestOldInputIsGivenDuringThePurge(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "a"})
	id, err := s.Executions().CreateStream(t.Context(), s.caller)
	if err == nil {
		err = s.Executions().WriteStdin(t.Context(), string(id), strings.NewReader("input"))
	}
	if err == nil {
		err = s.Executions().CloseStdin(t.Context(), string(id))
	}
	long := time.Now().AddDate(-1, 0, 0)
	file := filepath.Join(filepath.Dir(e.dbPath), "streams", string(id))
	if err := errors.Join(err, os.Chtimes(file, long, long)); err != nil {
		t.Fatal(err)
	}
	var x sandbox.Execution
	give := sync.OnceFunc(func() {
		x = s.startExecution("a", execution.Request{Argv: []string{"sh", "-c", "sleep 0.2; cat"}, StdinStream: id})
	})
	s.store.owned.Store(&give)
	s.Purge()
	if _, err := os.Stat(file); err != nil { // a command that is queued, or goes on after a restart, has not opened it
		t.Errorf("the input of a command was removed: %v", err)
	}
	if got := s.read(x.Stdout.ID, 0); got != "input" {
		t.Errorf("the command has read %q", got)
	}
}
