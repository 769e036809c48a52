package sshd

import (
	"context"
	"io"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/api/command"
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/sandbox"
)

// directSocket is the payload of a channel of type direct-streamlocal@openssh.com (OpenSSH's PROTOCOL, 2.4).
type directSocket struct {
	Path     string
	Reserved string
	Zero     uint32
}

const (
	// socketPathMax is the longest path that a Unix socket can have.
	socketPathMax = 107
	// explanationMax bounds the error of socketClient.
	explanationMax = 1 << 10
)

// socketClient is the program in each sandbox that connects its stdin and stdout with the socket that its argument names,
// with the rights of the image's user. It writes a byte when it is connected.
var socketClient = []string{"/.modbox/agent", "socket"}

// forwardSocket connects a channel with a Unix socket of the sandbox.
func (c *connection) forwardSocket(ctx context.Context, offered ssh.NewChannel) {
	var to directSocket
	if err := ssh.Unmarshal(offered.ExtraData(), &to); err != nil {
		refuse(offered, ssh.ConnectionFailed, "the request cannot be read")
		return
	}
	if to.Path == "" || len(to.Path) > socketPathMax || strings.ContainsRune(to.Path, 0) {
		refuse(offered, ssh.ConnectionFailed, "the path of the socket is not valid")
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	running, first, err := c.connectSocket(ctx, to.Path)
	if err != nil {
		refuse(offered, ssh.ConnectionFailed, c.server.explain(err))
		return
	}
	defer running.Close()
	channel, requests, err := offered.Accept()
	if err != nil {
		return // the connection is gone
	}
	go ssh.DiscardRequests(requests) // ends with the channel
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		feed(channel, running)
	}()
	copyOutput(channel, running, first)
	_ = channel.Close() // fails only with the connection
	cancel()
	<-fed
}

// connectSocket starts socketClient, and returns it with the output that it has read from the socket so far.
func (c *connection) connectSocket(ctx context.Context, path string) (*command.Session, []byte, error) {
	if err := c.server.permitted(ctx, c.login); err != nil {
		return nil, nil, err
	}
	in := command.Sandbox{Exec: func(ctx context.Context, cmd agentapi.Command) (*guest.Command, error) {
		return c.server.deps.Calls.Exec(ctx, c.login.caller(), c.login.ref, cmd)
	}}
	running, err := command.Start(ctx, in, agentapi.Command{Argv: append(socketClient[:len(socketClient):len(socketClient)], path), Stdin: true})
	if err != nil {
		return nil, nil, err
	}
	var explanation strings.Builder
	for {
		f, err := running.Next()
		switch {
		case err == io.EOF || err == nil && f.Type == agentapi.FrameExit:
			err = sandbox.Errorf(sandbox.PortClosed, "%s", strings.TrimSpace(explanation.String()))
		case err == nil && f.Type == agentapi.FrameStdout && len(f.Data) > 0:
			return running, f.Data[1:], nil
		case err == nil && f.Type == agentapi.FrameStderr && explanation.Len() < explanationMax:
			explanation.Write(f.Data[:min(len(f.Data), explanationMax)])
		}
		if err != nil {
			running.Close()
			return nil, nil, err
		}
	}
}

// copyOutput copies what a program reads from its socket to the client, until either is gone.
func copyOutput(channel io.Writer, running *command.Session, first []byte) {
	for data := first; ; {
		if _, err := channel.Write(data); err != nil {
			return
		}
		f, err := running.Next()
		if err != nil || f.Type == agentapi.FrameExit {
			return
		}
		if data = nil; f.Type == agentapi.FrameStdout {
			data = f.Data
		}
	}
}
