package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/modbox/modbox/client"
)

const (
	// DefaultTTL is how long a sandbox lives when its options say nothing.
	DefaultTTL = 15 * time.Minute
	// NoTTL in Options.TTL means the image's default, or no limit.
	NoTTL time.Duration = -1

	defaultWait = time.Minute      // for a sandbox to run
	cleanupTime = 30 * time.Second // for the end of a sandbox that nobody gets
	defaultURL  = "http://127.0.0.1:7070"
)

// Options describe a sandbox to make. The zero value is the default image, a ttl of [DefaultTTL] and
// a minute for it to run (WaitUpTo).
type Options = client.CreateOptions

// ListOptions select sandboxes; the zero value selects all that have not ended.
type ListOptions = client.ListOptions

// FailedError is the end of a sandbox that was to run.
type FailedError struct {
	// Sandbox is its last state; Cause is why it ended.
	Sandbox client.Sandbox
}

// Error returns the cause.
func (e *FailedError) Error() string {
	if c := e.Sandbox.Cause; c != nil {
		return fmt.Sprintf("sandbox %s ended: %s: %s", e.Sandbox.Name, c.Code, c.Message)
	}
	return fmt.Sprintf("sandbox %s is %s", e.Sandbox.Name, e.Sandbox.State)
}

// Is reports that the sandbox has ended: errors.Is(err, client.Ended) is true.
func (e *FailedError) Is(target error) bool { return target == error(client.Ended) }

// Sandboxes makes and finds the sandboxes of a client's workspace.
type Sandboxes struct{ client *client.Client }

// On returns the sandboxes of a client.
func On(c *client.Client) *Sandboxes { return &Sandboxes{client: c} }

// fromEnvironment returns the sandboxes of the server that the environment names.
func fromEnvironment() (*Sandboxes, error) {
	c, err := client.New(cmp.Or(os.Getenv("MODBOX_URL"), defaultURL), os.Getenv("MODBOX_API_TOKEN"))
	if err != nil {
		return nil, fmt.Errorf("MODBOX_URL: %w", err)
	}
	return On(c), nil
}

// Create is [Sandboxes.Create] on the server of the environment.
func Create(ctx context.Context, o Options) (*Sandbox, error) {
	s, err := fromEnvironment()
	if err != nil {
		return nil, err
	}
	return s.Create(ctx, o)
}

// Connect is [Sandboxes.Connect] on the server of the environment.
func Connect(ctx context.Context, ref string) (*Sandbox, error) {
	s, err := fromEnvironment()
	if err != nil {
		return nil, err
	}
	return s.Connect(ctx, ref)
}

// List is [Sandboxes.List] on the server of the environment.
func List(o ListOptions) (*client.List[client.Sandbox], error) {
	s, err := fromEnvironment()
	if err != nil {
		return nil, err
	}
	return s.List(o), nil
}

// Create makes a sandbox, or finds the live sandbox of the same request, and returns it when it runs.
// A sandbox that does not run in time is deleted if this call made it. Errors: *[FailedError] if it ended instead; code Timeout; Invalid, naming the field;
// Exists; NotFound for an unknown image; QuotaExceeded.
func (s *Sandboxes) Create(ctx context.Context, o Options) (*Sandbox, error) {
	switch o.TTL {
	case 0:
		o.TTL = DefaultTTL
	case NoTTL:
		o.TTL = 0
	}
	o.WaitUpTo = cmp.Or(o.WaitUpTo, defaultWait)
	var made bool
	if o.Made == nil {
		o.Made = &made
	}
	info, err := s.client.Create(ctx, o)
	if err != nil {
		return nil, err
	}
	switch {
	case info.State == client.Running:
		return s.object(info), nil
	case info.State.Ended() || info.State == client.Destroying:
		return nil, &FailedError{Sandbox: *info}
	case info.State == client.Provisioning && !*o.Made:
		return nil, late("sandbox %s did not run within %s; it was not deleted, because an equal request may have made it", info.Name, o.WaitUpTo)
	case info.State == client.Provisioning:
		err := late("sandbox %s did not run within %s and was deleted", info.Name, o.WaitUpTo)
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
		defer cancel()
		if _, endErr := s.client.Delete(end, info.ID); endErr != nil {
			err = errors.Join(err, fmt.Errorf("delete sandbox %s: %w", info.ID, endErr))
		}
		return nil, err
	}
	return s.Connect(ctx, info.ID) // a live sandbox of the same request, which was paused meanwhile
}

func late(format string, args ...any) error {
	return &client.Error{Code: client.Timeout, Status: http.StatusGatewayTimeout, Message: fmt.Sprintf(format, args...)}
}

// Connect returns a sandbox, named by its id or name, when it runs: it resumes a paused sandbox.
// Errors: NotFound; *[FailedError] for a sandbox that has ended; QuotaExceeded.
func (s *Sandboxes) Connect(ctx context.Context, ref string) (*Sandbox, error) {
	info, err := s.client.Get(ctx, ref)
	if err != nil {
		return nil, err
	}
	switch info.State {
	case client.Pausing, client.Paused, client.Resuming:
		info, err = s.client.Resume(ctx, info.ID)
	case client.Provisioning:
		info, err = s.client.Wait(ctx, info.ID, client.Running)
	}
	if err != nil {
		return nil, err
	}
	if info.State != client.Running {
		return nil, &FailedError{Sandbox: *info}
	}
	return s.object(info), nil
}

// List lists the records of sandboxes, newest first; Connect returns the object of a record.
func (s *Sandboxes) List(o ListOptions) *client.List[client.Sandbox] { return s.client.List(o) }

func (s *Sandboxes) object(info *client.Sandbox) *Sandbox {
	return &Sandbox{ID: info.ID, Name: info.Name, Files: &Files{client: s.client, id: info.ID}, client: s.client, info: *info}
}

// Sandbox is a sandbox. Make it with [Create] or [Connect].
type Sandbox struct {
	// ID and Name never change.
	ID, Name string
	// Files are the files of the sandbox.
	Files *Files

	client *client.Client
	mu     sync.Mutex
	info   client.Sandbox // guarded by mu
}

// Info returns the last known record of the sandbox; see [Sandbox.Refresh].
func (s *Sandbox) Info() client.Sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.info
}

// Refresh asks the server for the record of the sandbox. Errors: NotFound.
func (s *Sandbox) Refresh(ctx context.Context) (client.Sandbox, error) {
	return s.learn(s.client.Get(ctx, s.ID))
}

// learn keeps the record of an answer.
func (s *Sandbox) learn(info *client.Sandbox, err error) (client.Sandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.info = *info
	}
	return s.info, err
}

// SetTimeout has the sandbox destroyed after this time from now on, 1 minute to 24 hours, longer or
// shorter than before; 0 removes the limit. Errors: Invalid; Ended.
func (s *Sandbox) SetTimeout(ctx context.Context, d time.Duration) error {
	_, err := s.learn(s.client.Update(ctx, s.ID, client.UpdateOptions{TTL: &d}))
	return err
}

// Pause saves memory and files, and ends the processes. The next call into the sandbox resumes it.
func (s *Sandbox) Pause(ctx context.Context) error {
	_, err := s.learn(s.client.Pause(ctx, s.ID))
	return err
}

// Resume brings a paused sandbox back. Errors: QuotaExceeded; Ended.
func (s *Sandbox) Resume(ctx context.Context) error {
	_, err := s.learn(s.client.Resume(ctx, s.ID))
	return err
}

// Fork makes copies of the sandbox with its memory and processes. If some cannot run, it returns the
// others with the errors joined.
func (s *Sandbox) Fork(ctx context.Context, o client.ForkOptions) ([]*Sandbox, error) {
	forks, err := s.client.Fork(ctx, s.ID, o)
	if err != nil {
		return nil, err
	}
	var list []*Sandbox
	var errs []error
	for _, f := range forks {
		if f.Err != nil {
			errs = append(errs, f.Err)
			continue
		}
		list = append(list, On(s.client).object(f.Sandbox))
	}
	return list, errors.Join(errs...)
}

// Snapshot saves the files as a snapshot, which Options.Snapshot makes sandboxes from.
func (s *Sandbox) Snapshot(ctx context.Context, o client.SnapshotOptions) (*client.Snapshot, error) {
	return s.client.CreateSnapshot(ctx, s.ID, o)
}

// Delete destroys the sandbox, and returns when it is completely removed. It does nothing to a sandbox
// that has ended.
func (s *Sandbox) Delete(ctx context.Context) error {
	_, err := s.learn(s.client.Delete(ctx, s.ID))
	return err
}

// URL returns the URL of a port in the sandbox. A port that is not published yet is published for
// everybody who knows the URL; [client.Client.PublishPort] publishes a private port.
func (s *Sandbox) URL(ctx context.Context, port uint16) (string, error) {
	ports, err := s.client.Ports(s.ID).Collect(ctx)
	if err != nil {
		return "", err
	}
	for _, p := range ports {
		if p.Port == port {
			return p.URL, nil
		}
	}
	p, err := s.client.PublishPort(ctx, s.ID, port, client.PortPublic)
	if err != nil {
		return "", err
	}
	return p.URL, nil
}
