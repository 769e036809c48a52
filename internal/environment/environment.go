// Package environment configures the agents of boxes: the environment variables of a sandbox, its
// host name, its main command, and the settings of its network.
package environment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/retry"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// attemptTimeout bounds one call to an agent that may not have started yet.
	attemptTimeout = 5 * time.Second
	// updateTimeout bounds a change of the environment, during which nothing else can be done with the sandbox.
	updateTimeout = 30 * time.Second
)

// viteHosts is the variable with hosts for which Vite answers besides the hosts of a project's
// configuration. Without it, Vite refuses requests to the URL of its port.
const viteHosts = "__VITE_ADDITIONAL_SERVER_ALLOWED_HOSTS"

// noNetworkIndex is an index of packages for pip in sandboxes without a network. It does not exist, but pip
// prints its address before it says that it found no package, and so tells why and what helps.
const noNetworkIndex = "https://this-sandbox-has-no-network.invalid/enable-its-network-or-create-it-with-pip_packages"

// Config are the settings of all sandboxes.
type Config struct {
	// SandboxURL returns the URL for a host label, which the sandbox gets as MODBOX_SANDBOX_URL; nil
	// for none.
	SandboxURL func(label string) string
	// Domain is the domain beneath which sandboxes have hosts; "" for none.
	Domain string
	// Nameserver is the address at which sandboxes with a network resolve names; "" if no sandbox
	// has a network.
	Nameserver string
	// NetworkCA holds certificates (PEM) that sandboxes with a network trust; nil for none.
	NetworkCA []byte
}

// Store records environments.
type Store interface {
	// SetEnv replaces the environment of a live sandbox. Errors: NotFound.
	SetEnv(ctx context.Context, id sandbox.ID, env map[string]string) error
}

// Images finds the images of sandboxes.
type Images interface {
	// Lookup returns the image of a digest, whose files need not be on the disk. Errors: NotFound.
	Lookup(ctx context.Context, digest string) (spec.Image, error)
}

// Calls gives access to running sandboxes. [guest.Calls] implements it.
type Calls interface {
	// Use returns the box of a running sandbox, and resumes a paused sandbox first. Errors:
	// NotFound; Ended; the errors of a resume.
	Use(ctx context.Context, c sandbox.Caller, ref string) (*box.Box, error)
}

// Service configures agents. It is safe for concurrent use.
type Service struct {
	cfg    Config
	store  Store
	images Images
	calls  Calls
}

// New returns a service over a store, images and calls into sandboxes.
func New(cfg Config, store Store, images Images, calls Calls) *Service {
	return &Service{cfg: cfg, store: store, images: images, calls: calls}
}

// Agent returns the configuration for the agent of a sandbox. In the environment, the caller's
// variables take precedence over ours, and ours over the image's.
func (s *Service) Agent(sb *sandbox.Sandbox, img *spec.Image) agentapi.Config {
	env := make(map[string]string, len(img.Config.Env)+len(sb.Env)+4)
	for _, kv := range img.Config.Env {
		if name, value, ok := strings.Cut(kv, "="); ok && name != "" {
			env[name] = value
		}
	}
	env["MODBOX_SANDBOX_ID"] = string(sb.ID)
	env["MODBOX_SANDBOX_NAME"] = sb.Name
	if s.cfg.SandboxURL != nil {
		env["MODBOX_SANDBOX_URL"] = s.cfg.SandboxURL(sb.HostLabel)
	}
	if s.cfg.Domain != "" {
		env[viteHosts] = "." + s.cfg.Domain
	}
	if !sb.Network.Enabled {
		// Without a network pip and npm would repeat a request that cannot succeed for up to two minutes.
		env["PIP_RETRIES"], env["NPM_CONFIG_FETCH_RETRIES"] = "0", "0"
		env["PIP_EXTRA_INDEX_URL"] = noNetworkIndex
	}
	maps.Copy(env, sb.Env)
	var network *agentapi.Network
	if sb.Network.Enabled && s.cfg.Nameserver != "" {
		network = &agentapi.Network{Nameserver: s.cfg.Nameserver, CA: string(s.cfg.NetworkCA)}
	}
	return agentapi.Config{
		Hostname: Hostname(sb), Env: env,
		WorkingDir: img.Config.WorkingDir, User: img.Config.User, Main: mainCommand(img), Network: network,
	}
}

// Hostname returns the host name in a sandbox: the readable part of its host label, without the
// random part that prevents guesses of the sandbox's URL.
func Hostname(sb *sandbox.Sandbox) string {
	if i := strings.LastIndexByte(sb.HostLabel, '-'); i > 1 {
		return sb.HostLabel[:i]
	}
	return "sandbox"
}

// Configure calls the agent of a box until it answers or ctx ends. Configuring is idempotent, so it
// also serves to find out whether the agent has started.
func Configure(ctx context.Context, b *box.Box, cfg agentapi.Config) error {
	return untilAnswered(ctx, func(ctx context.Context) error { return b.Agent.Configure(ctx, cfg) })
}

// Await waits until the agent of a box that was started answers, or ctx ends.
func Await(ctx context.Context, b *box.Box) error {
	return untilAnswered(ctx, func(ctx context.Context) error {
		_, err := b.Agent.Health(ctx)
		return err
	})
}

// RestoreFiles gives an agent the files of a layer. The time that this takes depends on their number, so only
// the time in which the agent takes nothing of the layer is limited. Errors: also context.DeadlineExceeded
// after the limit; Unsupported if the layer is damaged.
func RestoreFiles(ctx context.Context, agent *agentapi.Client, layer io.Reader, limit time.Duration) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(limit, func() { cancel(context.DeadlineExceeded) })
	defer timer.Stop()
	err := agent.RestoreLayer(ctx, progress{layer, func() { timer.Reset(limit) }})
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var refused *agentapi.Error
	if errors.As(err, &refused) && refused.Code == agentapi.CodeInvalid {
		return sandbox.Errorf(sandbox.Unsupported, "%s", sandbox.OneLine(refused.Message))
	}
	return err
}

// progress calls read before each read.
type progress struct {
	io.Reader
	read func()
}

func (p progress) Read(b []byte) (int, error) {
	p.read()
	return p.Reader.Read(b)
}

// untilAnswered repeats a call of an agent until the agent answers or ctx ends.
func untilAnswered(ctx context.Context, call func(context.Context) error) error {
	var last error
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
		defer cancel()
		err := call(attempt)
		var refused *agentapi.Error
		if errors.As(err, &refused) || errors.Is(err, agentapi.ErrBadAnswer) {
			err = backoff.Permanent(err)
		} else if err != nil && ctx.Err() == nil {
			last = err
		}
		return struct{}{}, err
	}, retry.Pauses(2*time.Millisecond, 100*time.Millisecond), retry.Forever())
	if ctx.Err() != nil && last != nil {
		return last // it says more than the error of ctx
	}
	return err
}

// Refresh configures the agent of a running box with the present settings of its sandbox.
//
// Preconditions: an operation has the box.
func (s *Service) Refresh(ctx context.Context, b *box.Box) error {
	sb := b.Sandbox()
	img, err := s.image(ctx, b)
	if err != nil {
		return err
	}
	if err := b.Agent.Configure(ctx, s.Agent(&sb, &img)); err != nil {
		return b.Explain(ctx, err)
	}
	return b.Explain(ctx, announceLater(ctx, b, &img))
}

// image returns the image of a sandbox.
func (s *Service) image(ctx context.Context, b *box.Box) (spec.Image, error) {
	img, err := s.images.Lookup(ctx, b.Sandbox().ImageDigest)
	if err != nil {
		return img, fmt.Errorf("image of sandbox %s: %w", b.ID, err)
	}
	return img, nil
}

// Update sets and, where the value is nil, deletes environment variables of a sandbox, for later
// commands and interpreters, and returns all that are set. It resumes a paused sandbox. It does not change variables
// of the image and automatic variables (MODBOX_SANDBOX_ID, …): setting such a name hides the
// variable, deleting it shows it again. Errors: Invalid, naming the field; the errors of every call
// into a sandbox.
func (s *Service) Update(ctx context.Context, c sandbox.Caller, ref string, changes map[string]*string) (map[string]string, error) {
	b, err := s.calls.Use(ctx, c, ref)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		audit.FromContext(ctx).Detail("variable", name)
	}
	for {
		var env map[string]string
		var done bool
		// The operation keeps others from giving the box a new agent meanwhile, which takes no files after its configuration.
		err = b.Exclusively(ctx, box.Environment, func() (err error) {
			if b.Sandbox().State == sandbox.Running {
				done = true
				env, err = s.update(b, changes)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		if done {
			return env, nil
		}
		if b, err = s.calls.Use(ctx, c, ref); err != nil { // it was paused meanwhile
			return nil, err
		}
	}
}

// update is Update of a running sandbox. It goes on when its caller leaves, so that agent and row agree, and not when the sandbox ends.
//
// Preconditions: an operation has the box.
func (s *Service) update(b *box.Box, changes map[string]*string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(b.Context(), updateTimeout)
	defer cancel()
	sb := b.Sandbox()
	env := make(map[string]string, len(sb.Env)+len(changes))
	maps.Copy(env, sb.Env)
	for name, value := range changes {
		if value == nil {
			delete(env, name)
		} else {
			env[name] = *value
		}
	}
	if err := sandbox.CheckEnv(env); err != nil {
		return nil, err
	}
	if len(changes) == 0 {
		return env, nil
	}
	img, err := s.image(ctx, b)
	if err != nil {
		return nil, err
	}
	sb.Env = env
	if err := b.Explain(ctx, b.Agent.Configure(ctx, s.Agent(&sb, &img))); err != nil {
		return nil, err
	}
	if err := s.record(ctx, b, env); err != nil {
		return nil, err
	}
	return maps.Clone(env), b.Explain(ctx, announceLater(ctx, b, &img))
}

// record records the environment of a sandbox.
func (s *Service) record(ctx context.Context, b *box.Box, env map[string]string) error {
	b.Lock()
	defer b.Unlock()
	if err := s.store.SetEnv(ctx, b.ID, env); err != nil {
		return err
	}
	sb := b.Sandbox()
	sb.Env = env
	b.Set(sb)
	return nil
}
