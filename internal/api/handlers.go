package api

import (
	"github.com/modbox/modbox/internal/api/accounts"
	"github.com/modbox/modbox/internal/api/audits"
	"github.com/modbox/modbox/internal/api/computer"
	"github.com/modbox/modbox/internal/api/events"
	"github.com/modbox/modbox/internal/api/executions"
	"github.com/modbox/modbox/internal/api/files"
	"github.com/modbox/modbox/internal/api/host"
	"github.com/modbox/modbox/internal/api/images"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/api/runcode"
	"github.com/modbox/modbox/internal/api/sandboxes"
	"github.com/modbox/modbox/internal/api/scans"
	"github.com/modbox/modbox/internal/api/snapshots"
	"github.com/modbox/modbox/internal/api/sshaccess"
	"github.com/modbox/modbox/internal/api/tunnel"
	"github.com/modbox/modbox/internal/api/webhooks"
	"github.com/modbox/modbox/internal/api/workers"
	"github.com/modbox/modbox/internal/code"
	"github.com/modbox/modbox/internal/desktop"
	"github.com/modbox/modbox/internal/environment"
	"github.com/modbox/modbox/internal/execution"
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/network"
	"github.com/modbox/modbox/internal/prepare"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/snapshot"
)

// handler is the routes about a noun.
type handler interface {
	// Register adds the routes to m.
	Register(m *route.Mux)
}

// handlers returns the handlers of /v1. Those for a document need no dependencies.
func handlers(cfg Config, d Deps) []handler {
	var s services
	if d.Service != nil {
		s = servicesOf(d.Service)
	}
	view := sandboxes.View{URL: cfg.SandboxURL}
	if d.Workers != nil {
		view.Worker = d.Workers.Of
	}
	timeouts := executions.Timeouts{Sandboxes: d.Service, Default: cfg.ExecTimeout, Max: cfg.ExecTimeoutMax}
	return []handler{
		&sandboxes.Sandboxes{Service: d.Service, View: view},
		&sandboxes.Checkpoints{Service: d.Service, View: view},
		&sandboxes.Activity{Service: d.Service, Guest: s.guest},
		&events.Events{Hub: d.Events, Sandboxes: d.Service, Guest: s.guest, Elsewhere: d.UsedElsewhere, Auth: d.Auth, Ping: cfg.Ping},
		&webhooks.Webhooks{Service: d.Webhooks},
		&sandboxes.Environments{Service: s.environments},
		&sandboxes.Networks{Service: s.networks, View: view},
		&sandboxes.Ports{Sandboxes: d.Service, Networks: s.networks, Links: d.Links, View: view},
		&executions.Commands{Guest: s.guest, Timeouts: timeouts, Output: cfg.ExecOutput, OutputMax: cfg.ExecOutputMax, Ping: cfg.Ping},
		&executions.Executions{Service: s.executions, Sandboxes: d.Service, Ping: cfg.Ping},
		&executions.Streams{Service: s.executions},
		&runcode.Routes{Code: code.New(s.guest), Timeout: timeouts.Of, Ping: cfg.Ping},
		&computer.Routes{Guest: s.guest, Sandboxes: d.Service, Recorder: desktop.NewRecorder(s.executions, s.guest)},
		&scans.Routes{Guest: s.guest},
		&files.Files{Guest: s.guest, Ping: cfg.Ping},
		&files.Archives{Guest: s.guest},
		&snapshots.Snapshots{Service: s.snapshots},
		&snapshots.Files{Service: s.snapshots},
		&snapshots.Diffs{Service: s.snapshots},
		&snapshots.Builds{Service: s.assemblies},
		&images.Images{Catalogue: d.Catalogue, Store: d.Images, Prepare: s.prepare, Ping: cfg.Ping},
		&images.Dockerfiles{Builder: d.Builder, Ping: cfg.Ping},
		&images.Catalogue{Service: d.Catalogue},
		&images.Runtimes{Catalogue: d.Catalogue},
		&images.Registries{Service: d.Registries},
		&images.Packages{Prepare: s.prepare},
		&accounts.Sessions{Accounts: d.Accounts, SSO: d.SSO},
		&accounts.Tokens{Service: d.Auth},
		&accounts.Whoami{Accounts: d.Accounts},
		&accounts.Users{Accounts: d.Accounts},
		&accounts.Workspaces{Accounts: d.Accounts},
		&accounts.Members{Accounts: d.Accounts},
		&accounts.Quotas{Service: s.quotas},
		&audits.Routes{Log: d.Audit},
		&sshaccess.Routes{Server: cfg.SSH, Keys: d.SSHKeys},
		&tunnel.Tunnels{Sandboxes: d.Service, Guest: s.guest, Rights: d.Auth, Ping: cfg.Ping, Logger: d.Logger},
		&host.Routes{Version: cfg.Version, Driver: d.Driver, Machine: d.Machine, Platform: d.Platform, Metrics: d.Measured},
		&workers.Workers{Fleet: d.Workers},
		&version{version: cfg.Version, driver: d.Driver},
	}
}

// services are the parts of the service of sandboxes that handlers call.
type services struct {
	guest        *guest.Calls
	executions   *execution.Service
	environments *environment.Service
	networks     *network.Service
	snapshots    *snapshot.Service
	assemblies   *snapshot.Assemblies
	prepare      *prepare.Service
	quotas       *quota.Controller
}

func servicesOf(s *lifecycle.Service) services {
	return services{
		guest: s.Guest(), executions: s.Executions(), environments: s.Environments(), networks: s.Networks(),
		snapshots: s.Snapshots(), assemblies: s.Snapshots().Assemblies(), prepare: s.Prepare(), quotas: s.Quotas(),
	}
}
