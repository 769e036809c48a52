package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/client/sandbox"
)

const (
	maxListed = 100 // sandboxes in an answer
	maxForks  = 10
)

// described is a sandbox in an answer.
type described struct {
	ID    string     `json:"id"`
	Name  string     `json:"name"`
	State string     `json:"state"`
	Image string     `json:"image"`
	Ends  *time.Time `json:"ends_at,omitempty"`
}

func describe(info client.Sandbox) described {
	return described{info.ID, info.Name, string(info.State), info.Image, info.Deadline}
}

// seconds returns a number of seconds within the bounds of a ttl. field names it in an error.
func seconds(field string, n int) (time.Duration, error) {
	const least, most = int(MinLifetime / time.Second), int(MaxLifetime / time.Second)
	if n < least || n > most {
		return 0, &client.Error{Code: client.Invalid, Message: fmt.Sprintf("%s must be %d to %d", field, least, most)}
	}
	return time.Duration(n) * time.Second, nil
}

type createArguments struct {
	Image    string            `json:"image,omitempty" jsonschema:"image, e.g. modbox/code-exec or python:3.13; the server's default when omitted"`
	Snapshot string            `json:"snapshot,omitempty" jsonschema:"id or name:tag of a snapshot, instead of an image"`
	Name     string            `json:"name,omitempty" jsonschema:"name of the sandbox; made up when omitted. A live sandbox of that name is returned as it is"`
	TTL      int               `json:"ttl_seconds,omitempty" jsonschema:"lifetime in seconds, 60 to 86400; 900 when omitted"`
	Internet bool              `json:"internet,omitempty" jsonschema:"whether the sandbox reaches the internet"`
	AllowOut []string          `json:"allow_out,omitempty" jsonschema:"the only destinations on the internet that the sandbox reaches: names such as pypi.org or *.example.com, addresses and ranges; implies internet"`
	Env      map[string]string `json:"env,omitempty" jsonschema:"environment variables of all its commands"`

	RequestHost string   `json:"request_host,omitempty" jsonschema:"Host header that its servers see, e.g. localhost:${PORT}, for development servers that refuse other hosts; the host of the URL when omitted"`
	HTTPSPorts  []uint16 `json:"https_ports,omitempty" jsonschema:"ports on which its servers speak HTTPS; their certificates are not checked"`
}

func (s *Session) createSandbox(ctx context.Context, a createArguments) (*sdk.CallToolResult, error) {
	ttl, err := seconds("ttl_seconds", cmp.Or(a.TTL, int(sandbox.DefaultTTL/time.Second)))
	if err != nil {
		return nil, err
	}
	network := client.Network{Enabled: a.Internet || len(a.AllowOut) > 0, AllowOut: a.AllowOut, RequestHost: a.RequestHost, HTTPSPorts: a.HTTPSPorts}
	sbx, err := s.sandboxes.Create(ctx, sandbox.Options{
		Image: a.Image, Snapshot: a.Snapshot, Name: a.Name, TTL: ttl, Network: network, Env: a.Env,
		Labels: map[string]string{"created-by": "mcp"},
	})
	if err != nil {
		return nil, err
	}
	return answer(describe(sbx.Info()))
}

type noArguments struct{}

func (s *Session) listSandboxes(ctx context.Context, _ noArguments) (*sdk.CallToolResult, error) {
	page, err := s.sandboxes.List(sandbox.ListOptions{}).Page(ctx, client.PageOptions{Limit: maxListed})
	if err != nil {
		return nil, err
	}
	list := struct {
		Sandboxes []described `json:"sandboxes"`
		Own       string      `json:"own_sandbox,omitempty"`
		More      bool        `json:"more,omitempty"` // there are more sandboxes
	}{Sandboxes: []described{}, More: page.NextCursor != ""}
	for _, info := range page.Items {
		list.Sandboxes = append(list.Sandboxes, describe(info))
	}
	s.mu.Lock()
	if s.own != nil {
		list.Own = s.own.ID
	}
	s.mu.Unlock()
	return answer(list)
}

type forkArguments struct {
	Sandbox string `json:"sandbox,omitempty" jsonschema:"id or name of a sandbox, instead of the session's own"`
	Count   int    `json:"count,omitempty" jsonschema:"number of copies, 1 to 10; 1 when omitted"`
}

func (s *Session) fork(ctx context.Context, a forkArguments) (*sdk.CallToolResult, error) {
	count := cmp.Or(a.Count, 1)
	if count < 1 || count > maxForks {
		return nil, &client.Error{Code: client.Invalid, Message: fmt.Sprintf("count must be 1 to %d", maxForks)}
	}
	return s.in(ctx, a.Sandbox, 0, func(sbx *sandbox.Sandbox) (*sdk.CallToolResult, error) {
		forks, err := sbx.Fork(ctx, client.ForkOptions{Count: count, TTL: sandbox.DefaultTTL})
		if len(forks) == 0 {
			return nil, err
		}
		result := struct {
			Sandboxes []described `json:"sandboxes"`
			Errors    string      `json:"errors,omitempty"` // of copies that do not run
		}{}
		for _, f := range forks {
			result.Sandboxes = append(result.Sandboxes, describe(f.Info()))
		}
		if err != nil {
			result.Errors = public(err).Error()
		}
		return answer(result)
	})
}

type snapshotArguments struct {
	Sandbox string `json:"sandbox,omitempty" jsonschema:"id or name of a sandbox, instead of the session's own"`
	Name    string `json:"name,omitempty" jsonschema:"name of the snapshot: letters, digits, underscores and dashes; made up when omitted"`
	Tag     string `json:"tag,omitempty" jsonschema:"tag; latest when omitted"`
}

func (s *Session) snapshot(ctx context.Context, a snapshotArguments) (*sdk.CallToolResult, error) {
	return s.in(ctx, a.Sandbox, 0, func(sbx *sandbox.Sandbox) (*sdk.CallToolResult, error) {
		sn, err := sbx.Snapshot(ctx, client.SnapshotOptions{Name: a.Name, Tag: a.Tag})
		if err != nil {
			return nil, err
		}
		return answer(struct {
			ID   string `json:"id"`
			Name string `json:"name"`
			Tag  string `json:"tag"`
		}{sn.ID, sn.Name, sn.Tag})
	})
}

type urlArguments struct {
	Sandbox string `json:"sandbox,omitempty" jsonschema:"id or name of a sandbox, instead of the session's own"`
	Port    uint16 `json:"port" jsonschema:"port in the sandbox, 1 to 65535"`
	Private bool   `json:"private,omitempty" jsonschema:"publish the port for visitors with a link or an API token only"`
}

func (s *Session) getURL(ctx context.Context, a urlArguments) (*sdk.CallToolResult, error) {
	return s.in(ctx, a.Sandbox, 0, func(sbx *sandbox.Sandbox) (*sdk.CallToolResult, error) {
		var access client.PortAccess
		if a.Private {
			access = client.PortPrivate
		}
		address, access, err := s.client.Sandboxes.Ports.Visit(ctx, sbx.ID, a.Port, access)
		if err != nil {
			return nil, err
		}
		return answer(struct {
			URL    string            `json:"url"`
			Access client.PortAccess `json:"access"`
		}{address, access})
	})
}

type timeoutArguments struct {
	Sandbox string `json:"sandbox,omitempty" jsonschema:"id or name of a sandbox, instead of the session's own"`
	Seconds int    `json:"seconds" jsonschema:"seconds from now on, 60 to 86400"`
}

func (s *Session) setTimeout(ctx context.Context, a timeoutArguments) (*sdk.CallToolResult, error) {
	d, err := seconds("seconds", a.Seconds)
	if err != nil {
		return nil, err
	}
	return s.in(ctx, a.Sandbox, 0, func(sbx *sandbox.Sandbox) (*sdk.CallToolResult, error) {
		if err := s.extend(ctx, sbx, d); err != nil {
			return nil, err
		}
		return answer(describe(sbx.Info()))
	})
}

type destroyArguments struct {
	Sandbox string `json:"sandbox,omitempty" jsonschema:"id or name of a sandbox, instead of the session's own"`
}

func (s *Session) destroySandbox(ctx context.Context, a destroyArguments) (*sdk.CallToolResult, error) {
	ref := a.Sandbox
	if ref == "" {
		s.mu.Lock()
		if s.own != nil {
			ref = s.own.ID
		}
		s.mu.Unlock()
	}
	if ref == "" {
		return nil, &client.Error{Code: client.NotFound, Message: "this session has no sandbox of its own yet; name another in \"sandbox\""}
	}
	info, err := s.client.Sandboxes.Delete(ctx, ref)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own != nil && (err == nil && info.ID == s.own.ID || ref == s.own.ID && errors.Is(err, client.NotFound)) {
		s.own = nil
	}
	if err != nil {
		return nil, err
	}
	return answer(describe(*info))
}
