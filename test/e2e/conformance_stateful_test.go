package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/modbox/modbox/client"
)

// commandArgument is a program with its arguments, or for a create an object.
type commandArgument struct {
	Argv        []string
	Shell, Kind string
}

func (c *commandArgument) UnmarshalJSON(b []byte) error {
	if b[0] == '[' {
		return json.Unmarshal(b, &c.Argv)
	}
	type object commandArgument
	return json.Unmarshal(b, (*object)(c))
}

// statefulCalls are the calls for executions, saved states, snapshots and tokens.
var statefulCalls = map[string]call{
	"images.runtimes": func(ctx context.Context, c *client.Client, _ arguments) (any, error) {
		return c.Images.Runtimes().Collect(ctx)
	},
	"tokens.create": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Tokens.Create(ctx, a.Description, client.TokenOptions{Lifetime: time.Duration(a.ExpiresSeconds) * time.Second})
	},
	"tokens.list": func(ctx context.Context, c *client.Client, _ arguments) (any, error) {
		return c.Tokens.List().Collect(ctx)
	},
	"tokens.revoke": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return nil, c.Tokens.Revoke(ctx, a.ID)
	},

	"workspaces.create": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Workspaces.Create(ctx, client.WorkspaceOptions{Name: a.Name, Description: a.Description})
	},
	"workspaces.list": func(ctx context.Context, c *client.Client, _ arguments) (any, error) {
		return c.Workspaces.List().Collect(ctx)
	},
	"workspaces.get": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Workspaces.Get(ctx, a.Workspace)
	},
	"workspaces.add_member": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Workspaces.AddMember(ctx, a.Workspace, a.Name, a.Role)
	},
	"workspaces.delete": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return nil, c.Workspaces.Delete(ctx, a.Workspace)
	},

	"sandboxes.update_env": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Sandboxes.UpdateEnv(ctx, a.Ref, a.Changes)
	},
	"sandboxes.archive": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Sandboxes.Archive(ctx, a.Ref)
	},
	"sandboxes.pause": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Sandboxes.Pause(ctx, a.Ref)
	},
	"sandboxes.resume": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Sandboxes.Resume(ctx, a.Ref, client.ResumeOptions{Memory: client.Memory(a.Memory)})
	},
	"sandboxes.fork": fork,
	"sandboxes.files.write_many": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		var files []client.File
		for _, path := range slices.Sorted(maps.Keys(a.Files)) {
			files = append(files, client.File{Path: path, Content: []byte(a.Files[path])})
		}
		return nil, c.Sandboxes.Files.WriteMany(ctx, a.Ref, files)
	},

	"sandboxes.checkpoints.create": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Sandboxes.Checkpoints.Create(ctx, a.Ref, a.Name)
	},
	"sandboxes.checkpoints.list": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Sandboxes.Checkpoints.List(a.Ref).Collect(ctx)
	},
	"sandboxes.checkpoints.restore": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Sandboxes.Checkpoints.Restore(ctx, a.Ref, a.Checkpoint)
	},
	"sandboxes.checkpoints.delete": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return nil, c.Sandboxes.Checkpoints.Delete(ctx, a.Ref, a.Checkpoint)
	},

	"snapshots.create": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Snapshots.Create(ctx, a.Ref, client.SnapshotOptions{Name: a.Name, Tag: a.Tag, Message: a.Message, Metadata: a.Metadata})
	},
	"snapshots.build": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		sn, unchanged, err := c.Snapshots.Build(ctx, client.SnapshotBuildOptions{
			Runtime: a.Runtime, SnapshotOptions: client.SnapshotOptions{Name: a.Name}, Env: a.Env, ContentHash: a.ContentHash,
		})
		return map[string]any{"snapshot": sn, "unchanged": unchanged}, err
	},
	"snapshots.get": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Snapshots.Get(ctx, a.Snapshot)
	},
	"snapshots.list": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Snapshots.List(client.SnapshotFilter{Name: a.Name, Sort: a.Sort, Ascending: a.Order == "asc"}).Collect(ctx)
	},
	"snapshots.tag": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Snapshots.Tag(ctx, a.Snapshot, a.Tag)
	},
	"snapshots.lineage": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Snapshots.Lineage(a.Snapshot).Collect(ctx)
	},
	"snapshots.delete": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return nil, c.Snapshots.Delete(ctx, a.Snapshot)
	},

	"executions.start": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		stdin, _ := a.Stdin.(bool)
		o := client.ExecutionOptions{Kind: a.Kind, Stdin: stdin, IgnoreStderr: a.Stderr == "ignore", WaitUpTo: time.Duration(a.WaitSeconds) * time.Second}
		for path, content := range a.Files {
			o.Files = append(o.Files, client.ExecutionFile{Path: path, Content: []byte(content)})
		}
		return c.Executions.Start(ctx, a.Ref, a.command(), o)
	},
	"executions.list": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Executions.List(a.Ref, a.Kind).Collect(ctx)
	},
	"executions.get": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Executions.Get(ctx, a.ID, 0)
	},
	"executions.wait": waitExecution,
	"executions.cancel": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return c.Executions.Cancel(ctx, a.ID, a.Force)
	},
	"executions.logs": logs,
	"streams.write": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
		return nil, c.Streams.Write(ctx, a.ID, strings.NewReader(a.Text), a.End == nil || *a.End)
	},
}

func fork(ctx context.Context, c *client.Client, a arguments) (any, error) {
	children, err := c.Sandboxes.Fork(ctx, a.Ref, client.ForkOptions{
		Count: a.Count, Names: a.Names, Env: a.Env, Labels: a.Labels, TTL: time.Duration(a.TTLSeconds) * time.Second,
	})
	if err != nil {
		return nil, err
	}
	list := make([]any, len(children))
	for i, child := range children {
		list[i] = map[string]any{"sandbox": child.Sandbox, "error": child.Err}
	}
	return list, nil
}

func events(ctx context.Context, c *client.Client, a arguments) (any, error) {
	list := c.Sandboxes.Events(a.Ref, client.EventsOptions{Descending: a.Order == "desc"})
	list.PageSize = a.Limit
	return list.Collect(ctx)
}

// waitExecution makes an error of what is no error in Go: that the time was over.
func waitExecution(ctx context.Context, c *client.Client, a arguments) (any, error) {
	e, err := c.Executions.Get(ctx, a.ID, time.Duration(a.TimeoutSeconds)*time.Second)
	if err == nil && !e.State.Ended() {
		err = &client.Error{Code: client.Timeout}
	}
	return e, err
}

func logs(ctx context.Context, c *client.Client, a arguments) (any, error) {
	e, err := c.Executions.Get(ctx, a.ID, 0)
	if err != nil {
		return nil, err
	}
	out := e.Stdout
	if a.Output == "stderr" {
		out = e.Stderr
	}
	if out.StreamID == "" { // in Go the caller sees that
		return nil, &client.Error{Code: client.NotFound, Message: fmt.Sprintf("execution %s keeps no %s", e.ID, a.Output)}
	}
	r, err := c.Streams.Read(ctx, out.StreamID, client.StreamOptions{Offset: a.Offset, Follow: a.Follow, Timestamps: a.Timestamps})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	return string(text), err
}
