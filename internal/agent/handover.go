package agent

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/agentapi"
)

// handover is a listener for connections that the host hands over: their descriptors arrive in messages
// on a socket. It has none of the faults of gVisor's port forwarding.
type handover struct{ socket *net.UnixConn }

// Handover returns the listener for the connections that the host hands over on the socket f, such as
// stdin; nil when f is no socket, because the host hands none over.
func Handover(f *os.File) (net.Listener, error) {
	if domain, err := unix.GetsockoptInt(int(f.Fd()), unix.SOL_SOCKET, unix.SO_DOMAIN); err != nil || domain != unix.AF_UNIX {
		return nil, nil
	}
	unix.CloseOnExec(int(f.Fd())) // processes that the agent starts have a stdin of their own
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("socket of the host: %w", err)
	}
	return handover{conn.(*net.UnixConn)}, nil
}

// errHangUp reports that the host wants every connection closed.
var errHangUp = errors.New("the host hangs up")

// Accept returns the next connection. It ignores messages without one. With errHangUp it returns a connection that
// is to be closed after all others.
func (h handover) Accept() (net.Conn, error) {
	for {
		kind, rights := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
		_, n, _, _, err := h.socket.ReadMsgUnix(kind, rights)
		if err != nil {
			return nil, err
		}
		conn, err := connection(rights[:n])
		switch {
		case err != nil:
		case kind[0] == agentapi.HangUp:
			return conn, errHangUp
		default:
			return conn, nil
		}
	}
}

var errNoConnection = errors.New("the message has no connection")

// connection returns the connection whose descriptor came with a message.
func connection(rights []byte) (net.Conn, error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil || len(messages) != 1 {
		return nil, errNoConnection
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, errNoConnection
	}
	f := os.NewFile(uintptr(fds[0]), "connection")
	defer f.Close()
	return net.FileConn(f)
}

// Close implements [net.Listener].
func (h handover) Close() error { return h.socket.Close() }

// Addr implements [net.Listener].
func (h handover) Addr() net.Addr { return h.socket.LocalAddr() }
