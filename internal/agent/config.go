package agent

import (
	"net/http"
	"time"

	"github.com/modbox/modbox/internal/agent/answer"
	"github.com/modbox/modbox/internal/agentapi"
)

// notStarted is the exit code of a main process that could not be started, as in shells.
const notStarted = 127

// configure sets the environment and defaults; the first call also starts the main process.
func (a *Agent) configure(_ http.ResponseWriter, r *http.Request) error {
	var cfg agentapi.Config
	if err := answer.Decode(r, &cfg); err != nil {
		return err
	}
	if a.opts.Blank {
		if err := a.furnish(cfg.Layers); err != nil {
			return err
		}
	}
	if cfg.Restored {
		a.conns.closeBefore(r.Context())
	}
	if cfg.Network != nil && (a.opts.Init || a.opts.Root != "") {
		if cfg.Env == nil {
			cfg.Env = map[string]string{}
		}
		// A guest that makes this fail harms only itself.
		if err := a.setNetwork(cfg.Network, cfg.Env); err != nil {
			a.log.Warn("network not set up", "error", err)
		}
	}
	a.mu.Lock()
	first := !a.configured
	a.config, a.configured = cfg, true
	a.mu.Unlock()
	if cfg.Hostname != "" && (a.opts.Init || a.opts.Root != "") {
		if err := a.setHostname(cfg.Hostname); err != nil {
			a.log.Warn("host name not set", "hostname", cfg.Hostname, "error", err)
		}
	}
	if !first || len(cfg.Main) == 0 {
		return nil
	}
	main, err := a.startMain(cfg.Main)
	if err != nil {
		return err
	}
	a.mu.Lock()
	a.main = main
	a.mu.Unlock()
	return nil
}

// restoreLayer gives a sandbox that has just started the files of a layer. The first configuration ends
// that time, because from then on processes use the files.
func (a *Agent) restoreLayer(w http.ResponseWriter, r *http.Request) error {
	a.mu.Lock()
	configured := a.configured
	a.mu.Unlock()
	if configured {
		return answer.Errorf(agentapi.CodeInvalid, "the sandbox is configured: its files are in use")
	}
	return a.files.RestoreLayer(w, r)
}

// startMain starts the image's own command. If the command cannot be started, it counts as ended,
// with the reason as its output, because the sandbox is usable without it.
func (a *Agent) startMain(argv []string) (*process, error) {
	cmd := agentapi.Command{ID: agentapi.MainID, Argv: argv, Detach: true}
	return a.procs.start(cmd.ID, func(ended func(*process)) (*process, error) {
		p, err := a.startProcess(cmd, mainKeep, ended)
		if err == nil {
			return p, nil
		}
		now := time.Now()
		p = &process{
			id: cmd.ID, command: cmd, started: now, out: newOutput(mainKeep, false), done: true,
			status: &agentapi.Exit{Code: notStarted, EndedAt: now},
		}
		p.child = child{reaper: a.reaper, gone: true}
		p.out.append(agentapi.FrameStderr, []byte(answer.Error(err).Message+"\n"))
		p.out.finish()
		go ended(p)
		return p, nil
	})
}
