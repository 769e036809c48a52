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
	imageWait   = 30 * time.Minute // for a sandbox to run whose image the server builds or pulls
	lookEvery   = 5 * time.Second  // at what the server does for the image
	cleanupTime = 30 * time.Second // for the end of a sandbox that nobody gets
	defaultURL  = "http://127.0.0.1:7070"
)

// Options describe a sandbox to make. The zero value is the default image, a ttl of [DefaultTTL] and
// a minute for it to run (WaitUpTo), or 30 minutes if the server has to build or pull its image.
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
type Sandboxes struct {
	client   *client.Client
	progress func(client.Event)
}

// On returns the sandboxes of a client.
func On(c *client.Client) *Sandboxes { return &Sandboxes{client: c} }

// OnProgress returns sandboxes whose Create calls f with each event of the type "image_building": the
// server builds or pulls the image of the new sandbox, or installs packages. The event's Message is for
// people; its Data has "image", "phase" and "detail".
func (s *Sandboxes) OnProgress(f func(client.Event)) *Sandboxes {
	return &Sandboxes{client: s.client, progress: f}
}

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
	var made bool
	if o.Made == nil {
		o.Made = &made
	}
	limit := cmp.Or(o.WaitUpTo, defaultWait)
	wait := waiting{limit: limit, fixed: o.WaitUpTo != 0}
	if o.WaitUpTo = limit; s.progress != nil {
		o.WaitUpTo = min(limit, lookEvery)
	}
	info, err := s.client.Sandboxes.Create(ctx, o)
	if err != nil {
		return nil, err
	}
	if info.State == client.Provisioning {
		wait.end, wait.made = time.Now().Add(limit-o.WaitUpTo), *o.Made
		if info, err = s.started(ctx, info, wait); err != nil {
			return nil, err
		}
	}
	switch {
	case info.State == client.Running:
		return s.object(info), nil
	case info.State.Ended() || info.State == client.Destroying:
		return nil, &FailedError{Sandbox: *info}
	}
	return s.Connect(ctx, info.ID) // a live sandbox of the same request, which was paused meanwhile
}

// waiting is a wait for a new sandbox to run.
type waiting struct {
	limit time.Duration
	fixed bool // the limit is the caller's
	made  bool // the sandbox is of this call
	end   time.Time
	seen  int64 // the last event
	step  string
}

// started returns the sandbox when it runs or has ended. If it does not run in time, or if ctx ends,
// started deletes it, unless an equal request may have made it.
func (s *Sandboxes) started(ctx context.Context, info *client.Sandbox, w waiting) (*client.Sandbox, error) {
	id, name := info.ID, info.Name
	for {
		err := s.look(ctx, id, &w)
		if left := time.Until(w.end); err == nil && left <= 0 {
			kept := "was deleted"
			if !w.made {
				kept = "was not deleted, because an equal request may have made it"
			}
			err = &client.Error{
				Code: client.Timeout, Status: http.StatusGatewayTimeout,
				Message: fmt.Sprintf("sandbox %s did not run within %s and %s; WaitUpTo sets the limit%s", name, w.limit, kept, w.step),
			}
		} else if err == nil {
			slice, cancel := context.WithTimeout(ctx, min(left, lookEvery))
			info, err = s.client.Sandboxes.Wait(slice, id, client.Running)
			cancel()
			if err == nil {
				return info, nil
			}
			if ctx.Err() == nil && slice.Err() != nil {
				continue
			}
		}
		if !w.made {
			return nil, err
		}
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
		defer cancel()
		if _, endErr := s.client.Sandboxes.Delete(end, id); endErr != nil {
			err = errors.Join(err, fmt.Errorf("delete sandbox %s: %w", id, endErr))
		}
		return nil, err
	}
}

// look reads the new events of a sandbox, and gives it more time if the server makes its image.
func (s *Sandboxes) look(ctx context.Context, id string, w *waiting) error {
	if w.fixed && s.progress == nil {
		return nil
	}
	events, err := s.client.Sandboxes.Events(id, client.EventsOptions{AfterSeq: w.seen}).Collect(ctx)
	for _, e := range events {
		w.seen = e.Seq
		if e.Type != "image_building" {
			continue
		}
		if w.step == "" && !w.fixed {
			w.end = w.end.Add(imageWait - w.limit)
			w.limit = imageWait
		}
		w.step = "; " + e.Message
		if s.progress != nil {
			s.progress(e)
		}
	}
	return err
}

// Connect returns a sandbox, named by its id or name, when it runs: it resumes a paused sandbox.
// Errors: NotFound; *[FailedError] for a sandbox that has ended; QuotaExceeded.
func (s *Sandboxes) Connect(ctx context.Context, ref string) (*Sandbox, error) {
	info, err := s.client.Sandboxes.Get(ctx, ref)
	if err != nil {
		return nil, err
	}
	switch info.State {
	case client.Pausing, client.Paused, client.Resuming:
		info, err = s.client.Sandboxes.Resume(ctx, info.ID, client.ResumeOptions{})
	case client.Provisioning:
		info, err = s.client.Sandboxes.Wait(ctx, info.ID, client.Running)
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
func (s *Sandboxes) List(o ListOptions) *client.List[client.Sandbox] {
	return s.client.Sandboxes.List(o)
}

func (s *Sandboxes) object(info *client.Sandbox) *Sandbox {
	return &Sandbox{
		ID: info.ID, Name: info.Name, Files: &Files{client: s.client, id: info.ID},
		Contexts: &Contexts{client: s.client, id: info.ID}, client: s.client, info: *info,
	}
}

// Sandbox is a sandbox. Make it with [Create] or [Connect].
type Sandbox struct {
	// ID and Name never change.
	ID, Name string
	// Files are the files of the sandbox.
	Files *Files
	// Contexts are the interpreters of the sandbox that keep their state.
	Contexts *Contexts

	client *client.Client
	mu     sync.Mutex
	info   client.Sandbox // guarded by mu
}

// Client returns the client that the sandbox's calls use. It has all other calls of the API, such as
// Sandboxes.Checkpoints and Sandboxes.Ports, which take the sandbox's ID.
func (s *Sandbox) Client() *client.Client { return s.client }

// Info returns the last known record of the sandbox; see [Sandbox.Refresh].
func (s *Sandbox) Info() client.Sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.info
}

// Refresh asks the server for the record of the sandbox. Errors: NotFound.
func (s *Sandbox) Refresh(ctx context.Context) (client.Sandbox, error) {
	return s.learn(s.client.Sandboxes.Get(ctx, s.ID))
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
	_, err := s.learn(s.client.Sandboxes.Update(ctx, s.ID, client.UpdateOptions{TTL: &d}))
	return err
}

// Pause saves memory and files, and ends the processes. The next call into the sandbox resumes it.
func (s *Sandbox) Pause(ctx context.Context) error {
	_, err := s.learn(s.client.Sandboxes.Pause(ctx, s.ID))
	return err
}

// Archive moves the state of the paused sandbox to the server's object store. The next call into the sandbox fetches it and takes longer.
func (s *Sandbox) Archive(ctx context.Context) error {
	_, err := s.learn(s.client.Sandboxes.Archive(ctx, s.ID))
	return err
}

// Resume brings a paused sandbox back. Errors: QuotaExceeded; Ended.
func (s *Sandbox) Resume(ctx context.Context) error {
	_, err := s.learn(s.client.Sandboxes.Resume(ctx, s.ID, client.ResumeOptions{}))
	return err
}

// Fork makes copies of the sandbox with its memory and processes. If some cannot run, it returns the
// others with the errors joined.
func (s *Sandbox) Fork(ctx context.Context, o client.ForkOptions) ([]*Sandbox, error) {
	forks, err := s.client.Sandboxes.Fork(ctx, s.ID, o)
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
	return s.client.Snapshots.Create(ctx, s.ID, o)
}

// Delete destroys the sandbox, and returns when it is completely removed. It does nothing to a sandbox
// that has ended.
func (s *Sandbox) Delete(ctx context.Context) error {
	_, err := s.learn(s.client.Sandboxes.Delete(ctx, s.ID))
	return err
}

// URL returns the URL of a port in the sandbox. A port that is not published yet is published for
// everybody who knows the URL; [client.Ports.Publish] publishes a private port.
func (s *Sandbox) URL(ctx context.Context, port uint16) (string, error) {
	ports, err := s.client.Sandboxes.Ports.List(s.ID).Collect(ctx)
	if err != nil {
		return "", err
	}
	for _, p := range ports {
		if p.Port == port {
			return p.URL, nil
		}
	}
	p, err := s.client.Sandboxes.Ports.Publish(ctx, s.ID, port, client.PortPublic)
	if err != nil {
		return "", err
	}
	return p.URL, nil
}
