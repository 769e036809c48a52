// Package services assembles the services of a server: it gives each what it needs of the
// others, and joins their HTTP interfaces to one handler. It opens no file and no listener:
// its caller brings the store, the images and the driver, which are real in package server
// and fakes in tests.
package services

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/auth/sso"
	"github.com/modbox/modbox/internal/build"
	"github.com/modbox/modbox/internal/catalogue"
	"github.com/modbox/modbox/internal/codescan"
	"github.com/modbox/modbox/internal/console"
	"github.com/modbox/modbox/internal/dialect/e2b/template"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/fleet"
	"github.com/modbox/modbox/internal/eventstream"
	"github.com/modbox/modbox/internal/execution"
	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/network"
	"github.com/modbox/modbox/internal/output"
	"github.com/modbox/modbox/internal/preview"
	"github.com/modbox/modbox/internal/proxy"
	"github.com/modbox/modbox/internal/quarantine"
	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/secret"
	"github.com/modbox/modbox/internal/sshkey"
	"github.com/modbox/modbox/internal/store"
	"github.com/modbox/modbox/internal/store/eventrows"
	"github.com/modbox/modbox/internal/store/policyrows"
	"github.com/modbox/modbox/internal/store/sshkeyrows"
	"github.com/modbox/modbox/internal/store/webhookrows"
	"github.com/modbox/modbox/internal/stream"
	"github.com/modbox/modbox/internal/teardown"
	"github.com/modbox/modbox/internal/webhook"
)

// Ports are the store, images, driver and other parts that the services use. The caller opens them before [New] and closes them
// after [Services.Close].
type Ports struct {
	Store  *store.Store
	Keys   *secret.Keys // encrypt secrets and sign links
	Driver driver.Driver
	// Images are the images that sandboxes start from, and Known the same for the catalogue. An
	// [image.Store] is both.
	Images lifecycle.Images
	Known  catalogue.Images
	Layers lifecycle.Layers
	// Installed are the images on this machine that the image routes show, builds add to and the end of a workspace removes.
	Installed  *image.Store
	Registries *registry.Registries
	Streams    *stream.Store
	// Gateways connects sandboxes to networks; nil means that none has a network.
	Gateways network.Gateways
	// Quarantine keeps saved states that the store does not know; nil means a directory
	// beside the checkpoints.
	Quarantine *quarantine.Store
	// ObserveCalls observes the calls to agents; nil means none.
	ObserveCalls agentapi.Observer
	// Metrics receives the metrics of the services; nil means none.
	Metrics prometheus.Registerer
	Logger  *slog.Logger
}

// Config are the settings of the services.
type Config struct {
	Lifecycle lifecycle.Config
	Events    eventstream.Config
	Webhooks  webhook.Config
	Output    output.Config // no output is stored without a URL
	Audit     audit.Config
	Accounts  auth.AccountsConfig
	// Providers sign people in; none means that only passwords do.
	Providers []sso.Provider
	// DefaultMemory is the memory in bytes of a sandbox whose image names none.
	DefaultMemory int64
	// URLs are the addresses of the server and its sandboxes.
	URLs proxy.URLs
	// Console is the URL of the web console; "" for none.
	Console string
}

// Services are the services of one server.
type Services struct {
	Audit      *audit.Log
	Auth       *auth.Authenticator
	Accounts   *auth.Accounts
	Registries *registry.Registries
	Catalogue  *catalogue.Catalogue
	Lifecycle  *lifecycle.Service
	Builder    *build.Builder
	Templates  *template.Builds // of the E2B dialect
	SSO        *sso.SignIn
	Links      *preview.Links
	SSHKeys    *sshkey.Keys
	Events     *eventstream.Hub
	Webhooks   *webhook.Service

	ports   Ports
	calls   *agentapi.Memory
	urls    proxy.URLs
	console string
	closers []func() // in the order of making
}

// callMemory bounds the memory of the calls to the agents of all boxes, of their input, and of the bodies of requests.
const callMemory = 256 << 20

// New makes the services, and records as interrupted the operations that a killed server had
// begun. On an error it closes what it has made. The caller calls [Services.Start] before it
// serves a request, and [Services.Close] at the end.
func New(ctx context.Context, cfg Config, ports Ports) (_ *Services, err error) {
	s := &Services{Registries: ports.Registries, Links: preview.New(ports.Keys), ports: ports, calls: agentapi.NewMemory(callMemory), urls: cfg.URLs, console: cfg.Console}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	st := ports.Store
	cfg.Audit.Owner = st.Owner()
	cfg.Audit.Outputs = policyrows.New(st.DB).AuditOutput
	s.Audit = audit.Open(st.Audit, cfg.Audit, ports.Logger)
	s.closers = append(s.closers, s.Audit.Close)
	if err := s.Audit.Recover(ctx); err != nil {
		return nil, err
	}
	s.Catalogue = catalogue.New(st.Catalogue, st.Registries, ports.Known, cfg.DefaultMemory)
	if s.Auth, err = auth.New(auth.Store{Tokens: st.Tokens, Memberships: st.Workspaces, Sessions: st.Sessions, Users: st.Users}); err != nil {
		return nil, err
	}
	s.closers = append(s.closers, s.Auth.Close)
	s.SSHKeys = sshkey.New(sshkeyrows.New(ports.Store.DB), s.Auth)
	uploads := &template.Uploads{}
	var stored execution.Stored
	if cfg.Output.URL != "" && ports.Streams != nil {
		o := output.New(cfg.Output, output.Deps{Records: st.Executions.Outputs(), Used: st.Sandboxes.Archives().Any, Confirm: st.Confirm, Streams: ports.Streams, Owner: st.Owner(), Logger: ports.Logger})
		s.closers = append(s.closers, func() { _ = o.Close() }) // it was flushed
		stored = o
	}
	owned := st.Sandboxes.Owned(st.Owner())
	s.Lifecycle, err = lifecycle.New(cfg.Lifecycle, lifecycle.Deps{
		Owner: st.Owner(), Store: owned, Lookup: owned, Quotas: st.Quotas, Usage: st.Usage, Networks: owned, Environments: owned,
		Executions: st.Executions, Checkpoints: st.Checkpoints, Snapshots: st.Snapshots, Drafts: st.Snapshots, Switches: st.Catalogue,
		Archives: owned, Starts: owned, States: st.Sandboxes.Archives(), Copies: st.Sandboxes.Archives(),
		Driver: ports.Driver, Images: ports.Images, Catalogue: s.Catalogue, Layers: ports.Layers, Gateways: ports.Gateways, Streams: ports.Streams, StoredOutput: stored,
		Quarantine: ports.Quarantine, Logger: ports.Logger, Metrics: ports.Metrics, Calls: s.calls, ObserveCalls: ports.ObserveCalls,
		Scans: codescan.New(policyrows.New(ports.Store.DB)), Audit: s.Audit, Uploads: uploads,
	})
	if err != nil {
		return nil, err
	}
	s.Builder = build.New(build.Config{}, build.NewHost(cfg.Lifecycle.MaxBuilds, build.HostDeps{
		Images: ports.Images, Snapshots: s.Lifecycle.Snapshots(), Prepare: s.Lifecycle.Prepare(), Boxes: s.Lifecycle.WorkBoxes(),
		Quotas: s.Lifecycle.Quotas(), Work: s.Lifecycle.Work(),
	}), ports.Installed)
	s.Templates = template.New(template.Deps{
		Owner:   st.Owner(),
		Builder: s.Builder, Images: ports.Installed, Quotas: s.Lifecycle.Quotas(), Uploads: uploads, Work: s.Lifecycle.Work(),
		SpoolDir: cfg.Lifecycle.SpoolDir, Network: func() bool { return s.Lifecycle.Networks().Offered() == nil }, Logger: ports.Logger,
	})
	cfg.Accounts.Owner = st.Owner()
	emptier := teardown.New(st.Owner(), s.Lifecycle, s.Lifecycle.Snapshots(), ports.Installed)
	if s.Accounts, err = auth.NewAccounts(cfg.Accounts, auth.AccountStore{
		Users: st.Users, Workspaces: st.Workspaces, Members: st.Members, SignIns: st.Sessions, Invitations: st.Invitations, Identities: st.Users,
	}, s.Auth, emptier, ports.Logger); err != nil {
		return nil, err
	}
	s.closers = append(s.closers, s.Accounts.Close)
	if s.SSO, err = sso.New(cfg.Providers, st.Owner(), s.Accounts, cfg.URLs.Server(), console.Callback(cfg.Console)); err != nil {
		return nil, err
	}
	s.closers = append(s.closers, s.SSO.Close)
	s.Events = eventstream.New(cfg.Events, eventrows.New(ports.Store.DB), s.Lifecycle, ports.Logger)
	s.closers = append(s.closers, s.Events.Close)
	hooks := webhookrows.New(ports.Store.DB)
	s.Webhooks = webhook.New(cfg.Webhooks, hooks, hooks, s.Lifecycle, ports.Keys, ports.Logger)
	s.closers = append(s.closers, s.Webhooks.Close)
	if ports.Metrics != nil {
		collectors := slices.Concat(s.Webhooks.Collectors(), s.Builder.Collectors(), []prometheus.Collector{s.Events.Collector()})
		if workers, ok := ports.Driver.(*fleet.Driver); ok {
			collectors = append(collectors, fleet.NewCollector(workers))
		}
		for _, c := range collectors {
			if err := ports.Metrics.Register(c); err != nil {
				return nil, fmt.Errorf("register the metrics of events: %w", err)
			}
		}
	}
	return s, nil
}

// Start takes over the sandboxes of the server before and starts the work in the background.
// The caller ends that with Close of s.Lifecycle, before [Services.Close].
func (s *Services) Start(ctx context.Context) error {
	if err := s.Lifecycle.Start(ctx); err != nil {
		return fmt.Errorf("start lifecycle: %w", err)
	}
	if st, work := s.ports.Store, s.Lifecycle.Work(); st.Ranges() != sandbox.AllRanges {
		work.Go(func() { s.Lifecycle.Quotas().Follow(work.Context(), st.ReleasedElsewhere) })
	}
	s.Accounts.Start(ctx)
	s.Events.Start()
	if s.ports.Store.Owner().Primary() { // the others only record deliveries, which the primary notices
		s.Webhooks.Start()
	}
	s.Templates.SweepEvery(time.Minute)
	return nil
}

// Close ends the services, the last that New made first.
func (s *Services) Close() {
	for i := len(s.closers) - 1; i >= 0; i-- {
		s.closers[i]()
	}
	s.closers = nil
}
