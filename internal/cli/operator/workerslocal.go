package operator

import (
	"context"
	"errors"
	"fmt"

	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/cli/base"
	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/server"
	"github.com/modbox/modbox/internal/statedir"
	"github.com/modbox/modbox/internal/store/workerrows"
	"github.com/modbox/modbox/internal/worker"
)

// listWorkersLocal lists the workers in the database of the server on this machine.
func listWorkersLocal(ctx context.Context, env *base.Env, local *base.LocalFlags) error {
	cfg, err := local.Load(env)
	if err != nil {
		return err
	}
	list, err := recordedWorkers(ctx, cfg)
	if err != nil {
		return err
	}
	return printWorkers(env, list)
}

// recordedWorkers returns the workers in the database. Errors: NotFound if no server has run here.
func recordedWorkers(ctx context.Context, cfg config.Config) (list []worker.Record, err error) {
	st, err := server.OpenExistingStore(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	return workerrows.New(st.DB).List(ctx)
}

// printWorkers prints the records of workers that were not removed.
func printWorkers(env *base.Env, list []worker.Record) error {
	shown, rows := []map[string]any{}, [][]string{}
	for _, w := range list {
		if w.Status == worker.Gone {
			continue
		}
		shown = append(shown, map[string]any{
			"id": w.ID, "name": w.Name, "draining": w.Status == worker.Draining, "address": w.Address, "version": w.Version,
			"memory_bytes": w.MemoryBytes, "cores": w.Cores, "created_at": w.JoinedAt, "seen_at": w.SeenAt,
		})
		rows = append(rows, []string{w.ID, w.Name, string(w.Status), base.Size(w.MemoryBytes), fmt.Sprint(w.Cores), w.Version, w.Address, base.Age(w.SeenAt)})
	}
	if env.JSON {
		return env.PrintJSON(shown)
	}
	return env.PrintTable([]string{"ID", "NAME", "STATUS", "MEMORY", "CORES", "VERSION", "ADDRESS", "SEEN"}, rows)
}

// removeWorkerLocal records that a worker is gone, while no server uses the state directory.
func removeWorkerLocal(ctx context.Context, env *base.Env, local *base.LocalFlags, ref string) (err error) {
	cfg, err := local.Load(env)
	if err != nil {
		return err
	}
	unlock, err := statedir.Lock(ctx, cfg.StateDir, cfg.StateDir)
	if err != nil {
		return err
	}
	defer unlock()
	st, err := server.OpenExistingStore(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	rows := workerrows.New(st.DB)
	list, err := rows.List(ctx)
	if err != nil {
		return err
	}
	for _, w := range list {
		if w.Status != worker.Gone && (w.Name == ref || w.ID == ref) {
			return audit.RecordLocally(ctx, st.Audit, audit.Record{Action: "delete-worker", ObjectKind: "worker", ObjectID: w.ID, ObjectName: w.Name}, func(ctx context.Context) error {
				return rows.Save(ctx, w.Removed())
			})
		}
	}
	return sandbox.Errorf(sandbox.NotFound, "no worker has the name or id %.100q; \"modbox workers ls --local\" lists them", ref)
}
