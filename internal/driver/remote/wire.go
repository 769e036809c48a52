package remote

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// protocol is the version of the messages. The two sides must have the same.
const protocol = 3

const (
	// maxMessage bounds a message in bytes. The longest are descriptions of checkpoints.
	maxMessage = 24 << 20
	// maxAnswer bounds the answer to a call that is no list.
	maxAnswer = 64 << 10
	// maxPrivate bounds the private text of an error, so that its answer is not too long.
	maxPrivate = 4 << 10
	// maxHandle bounds the handle of a box.
	maxHandle = 4 << 10
)

// op names a call.
type op string

const (
	opHello      op = "hello"
	opCreate     op = "create"
	opStart      op = "start"
	opRecover    op = "recover"
	opWait       op = "wait"
	opDestroy    op = "destroy"
	opDial       op = "dial"
	opStats      op = "stats"
	opList       op = "list"
	opCheckpoint op = "checkpoint"
	opCanRestore op = "can_restore"
	opRestore    op = "restore"
	opStage      op = "stage"
	opImage      op = "image"
	opWriteLayer op = "write_layer"
	opWriteNames op = "write_names"
	opFurnish    op = "furnish"
	opPlug       op = "plug"
	opUnplug     op = "unplug"
	opUsage      op = "usage"
	opDiskUse    op = "disk_use"
)

// request is the first message of a stream. Each call uses the fields that it needs.
type request struct {
	Op     op
	ID     sandbox.ID    `json:",omitempty"`
	Hello  *Control      `json:",omitempty"`
	Spec   *driver.Spec  `json:",omitempty"`
	Handle driver.Handle `json:",omitempty"`
	Port   uint16        `json:",omitempty"`
	// Digests are of files of a root filesystem, and Size is of the only one.
	Digests []string `json:",omitempty"`
	Size    int64    `json:",omitempty"`
	// Token names a staged checkpoint. Files describe a checkpoint for opCanRestore.
	Token string `json:",omitempty"`
	Files []file `json:",omitempty"`
	// RootFS is the digest of a root filesystem, as in Spec.
	RootFS  string                   `json:",omitempty"`
	Options driver.CheckpointOptions `json:",omitzero"`
	NIC     *nic                     `json:",omitempty"`
}

// response is the answer to a call. Each call uses the fields that it needs.
type response struct {
	Error   *wireError           `json:",omitempty"`
	Welcome *Welcome             `json:",omitempty"`
	Handle  driver.Handle        `json:",omitempty"`
	Exit    driver.Exit          `json:",omitzero"`
	Stats   sandbox.Stats        `json:",omitzero"`
	Usage   driver.Usage         `json:",omitzero"`
	IDs     []sandbox.ID         `json:",omitempty"`
	DiskUse map[sandbox.ID]int64 `json:",omitempty"`
	Layers  int                  `json:",omitempty"`
	// Lacks are the digests of files that the worker must be sent first.
	Lacks []string `json:",omitempty"`
	// File is a file of a checkpoint, whose content follows.
	File *file `json:",omitempty"`
}

// Control is how a control plane introduces itself to a worker.
type Control struct {
	// Protocol is the version of the messages.
	Protocol int
	// Instance names a [Driver], which knows its boxes.
	Instance string
	// Installation is the control plane's installation.
	Installation string
	// Epoch grows with each start of a control plane of the installation.
	Epoch int64
}

// Welcome is the worker's answer to a [Control].
type Welcome struct {
	// Protocol is the version of the messages.
	Protocol int
	// Instance names the driver on the worker, which knows its boxes.
	Instance     string
	Capabilities driver.Capabilities
	Host         Host
}

// Host describes a worker, as the worker has it. Workers of earlier versions do not say it.
type Host struct {
	// Name is the name that its operator gave the worker.
	Name string `json:",omitempty"`
	// Version is of its program.
	Version string `json:",omitempty"`
	// MemoryBytes and Cores are of its machine.
	MemoryBytes int64 `json:",omitempty"`
	Cores       int   `json:",omitempty"`
}

// nic is a [driver.NIC] without its file.
type nic struct {
	// Token names the interface, so that a connection to it can be made again.
	Token           string
	MAC, GatewayMAC net.HardwareAddr
	Address         netip.Prefix
	Gateway         netip.Addr
	MTU             int
}

// writeMessage writes a message: its length in four bytes, and JSON.
func writeMessage(w io.Writer, message any) error {
	data, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	if len(data) > maxMessage {
		return fmt.Errorf("a message of %d bytes is larger than %d", len(data), maxMessage)
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...))
	return err
}

// answerLimit returns the limit of the answer to a call.
func answerLimit(o op) uint32 {
	if o == opList || o == opDiskUse {
		return maxMessage
	}
	return maxAnswer
}

// readMessage reads a message of at most limit bytes. It takes memory for what has arrived only.
func readMessage(r io.Reader, limit uint32, message any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	length := binary.BigEndian.Uint32(head[:])
	if length > limit {
		return fmt.Errorf("a message of %d bytes is larger than %d", length, limit)
	}
	data, err := io.ReadAll(io.LimitReader(r, int64(length)))
	if err != nil {
		return err
	}
	if len(data) < int(length) {
		return io.ErrUnexpectedEOF
	}
	if err := json.Unmarshal(data, message); err != nil {
		return fmt.Errorf("decode message: %w", err)
	}
	return nil
}

// wireError is an error in a message.
type wireError struct {
	Code       sandbox.Code  `json:",omitempty"`
	Field      string        `json:",omitempty"`
	Message    string        `json:",omitempty"`
	RetryAfter time.Duration `json:",omitempty"`
	// Private is the text of an error without a code, or the private reason.
	Private string `json:",omitempty"`
	// Is names the errors of [known] that the error is.
	Is []string `json:",omitempty"`
}

// known are errors that callers compare with.
var known = map[string]error{
	"busy":       driver.ErrBusy,
	"canceled":   context.Canceled,
	"deadline":   context.DeadlineExceeded,
	"no_memory":  driver.ErrNoMemory,
	"not_staged": driver.ErrNotStaged,
	"omitted":    driver.ErrOmitted,
	"no_space":   sandbox.ErrNoSpace,
}

// encode returns the message of an error; nil for nil.
func encode(err error) *wireError {
	if err == nil {
		return nil
	}
	w := &wireError{Private: err.Error()}
	for name, target := range known {
		if errors.Is(err, target) {
			w.Is = append(w.Is, name)
		}
	}
	var e *sandbox.Error
	if errors.As(err, &e) {
		w.Code, w.Field, w.Message, w.RetryAfter = e.Code, e.Field, sandbox.OneLine(e.Message), e.RetryAfter
		if error(e) == err && e.Err == nil {
			w.Private = ""
		} else if error(e) == err {
			w.Private = e.Err.Error()
		}
	}
	w.Private = w.Private[:min(len(w.Private), maxPrivate)]
	return w
}

// reason is a private reason of an error of the other side. It is also the errors of [known] that the other is.
type reason struct {
	text string
	is   []error
}

func (r *reason) Error() string   { return r.text }
func (r *reason) Unwrap() []error { return r.is }

// decode returns the error of a message; nil for nil.
func (w *wireError) decode() error {
	if w == nil {
		return nil
	}
	inner := &reason{text: w.Private}
	for _, name := range w.Is {
		if target, ok := known[name]; ok {
			inner.is = append(inner.is, target)
		}
	}
	if !slices.Contains(sandbox.Codes, w.Code) {
		return inner
	}
	e := &sandbox.Error{Code: w.Code, Field: w.Field, Message: sandbox.OneLine(w.Message), RetryAfter: w.RetryAfter}
	if w.Private != "" || len(inner.is) > 0 {
		e.Err = inner
	}
	return e
}

// maxChunk bounds a chunk of a body in bytes.
const maxChunk = 64 << 10

// chunkWriter writes a body in chunks: their lengths in four bytes, and their bytes.
type chunkWriter struct {
	w     io.Writer
	frame [4 + maxChunk]byte
}

func (c *chunkWriter) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		part := p[:min(len(p), maxChunk)]
		binary.BigEndian.PutUint32(c.frame[:], uint32(len(part)))
		copy(c.frame[4:], part)
		if _, err := c.w.Write(c.frame[:4+len(part)]); err != nil {
			return n, err
		}
		n, p = n+len(part), p[len(part):]
	}
	return n, nil
}

// end writes the end of the body.
func (c *chunkWriter) end() error {
	_, err := c.w.Write(make([]byte, 4))
	return err
}

// chunkReader reads a body in chunks. Its end is io.EOF; a body without its end is another error.
type chunkReader struct {
	r    io.Reader
	head [4]byte
	got  int    // bytes of head that were read; a deadline may end a read between them
	left uint32 // bytes of the current chunk
	done bool
}

func (c *chunkReader) Read(p []byte) (int, error) {
	if c.done {
		return 0, io.EOF
	}
	if c.left == 0 {
		n, err := io.ReadFull(c.r, c.head[c.got:])
		if c.got += n; err != nil {
			return 0, unexpected(err)
		}
		c.got, c.left = 0, binary.BigEndian.Uint32(c.head[:])
		if c.done = c.left == 0; c.done {
			return 0, io.EOF
		}
	}
	n, err := c.r.Read(p[:min(len(p), int(c.left))])
	c.left -= uint32(n)
	return n, unexpected(err)
}

// unexpected returns err for an end that is too early.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
