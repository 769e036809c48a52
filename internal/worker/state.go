package worker

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/modbox/modbox/internal/durable"
	"github.com/modbox/modbox/internal/sandbox"
)

var workerID = regexp.MustCompile(`^(worker|pod)-[A-Z2-7]{26}$`)

// suppliedPrefix begins the ids of workers that the control plane has made, each for a box.
const suppliedPrefix = "pod-"

// NewSuppliedID returns an id for a worker that the control plane makes for a box.
func NewSuppliedID() string { return suppliedPrefix + rand.Text() }

// Supplied reports whether an id is of [NewSuppliedID].
func Supplied(id string) bool { return strings.HasPrefix(id, suppliedPrefix) }

// parseWorkerID returns an id of a worker, and whether it is one.
func parseWorkerID(text string) (string, bool) { return text, workerID.MatchString(text) }

// stateFile is the name of the file of a worker's [State] in its directory.
const stateFile = "worker.json"

// keyFile is the name of the file of a worker's key beside it.
const keyFile = "worker.key"

// State has the files of a worker: its id, its key, and the control plane that it serves. It is safe for concurrent use.
type State struct {
	path string
	key  *ecdsa.PrivateKey

	mu   sync.Mutex
	kept kept // guarded by mu
}

type kept struct {
	ID string `json:"id"`
	// Installation and Epoch are of the newest control plane that the worker has served.
	Installation string `json:"installation,omitempty"`
	Epoch        int64  `json:"epoch,omitempty"`
}

// OpenState returns the state in a directory. The first call makes it, with an id; "" is a new id.
func OpenState(dir, id string) (*State, error) {
	key, err := openKey(dir)
	if err != nil {
		return nil, fmt.Errorf("key of the worker: %w", err)
	}
	s := &State{path: filepath.Join(dir, stateFile), key: key}
	text, err := os.ReadFile(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.kept.ID = cmp.Or(id, "worker-"+rand.Text())
		if _, ok := parseWorkerID(s.kept.ID); !ok {
			return nil, fmt.Errorf("%q is not the id of a worker", id)
		}
		return s, s.write()
	case err != nil:
		return nil, fmt.Errorf("state of the worker: %w", err)
	}
	if err := json.Unmarshal(text, &s.kept); err != nil {
		return nil, fmt.Errorf("state of the worker %s: %w", s.path, err)
	}
	if _, ok := parseWorkerID(s.kept.ID); !ok {
		return nil, fmt.Errorf("state of the worker %s: %q is not the id of a worker", s.path, s.kept.ID)
	}
	if id != "" && id != s.kept.ID {
		return nil, fmt.Errorf("state of the worker %s: it is of %s, not of %s", s.path, s.kept.ID, id)
	}
	return s, nil
}

// write writes the state to the disk.
func (s *State) write() error {
	text, err := json.Marshal(s.kept)
	if err == nil {
		err = durable.WriteFile(s.path, append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("state of the worker: %w", err)
	}
	return nil
}

// ID returns the worker's id.
func (s *State) ID() string { return s.kept.ID }

// Accept records a control plane, after which none of another installation and none with a smaller epoch is
// accepted. Errors: Conflict, with what to do.
func (s *State) Accept(installation string, epoch int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.kept
	switch {
	case before.Installation != "" && before.Installation != installation:
		return sandbox.Errorf(sandbox.Conflict, "this worker serves installation %s, and not %s; to give it to another, end its sandboxes and remove %s", before.Installation, installation, s.path)
	case epoch < before.Epoch:
		return sandbox.Errorf(sandbox.Conflict, "this worker has served a newer server: epoch %d, and not %d", before.Epoch, epoch)
	case epoch == before.Epoch && before.Installation == installation:
		return nil
	}
	s.kept.Installation, s.kept.Epoch = installation, epoch
	if err := s.write(); err != nil {
		s.kept = before
		return err
	}
	return nil
}
