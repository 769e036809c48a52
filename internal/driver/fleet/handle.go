package fleet

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// handlePrefix begins the handles of boxes. Boxes of a server that had one worker have the handles of their worker's driver.
const handlePrefix = "fleet/1 "

// handle is where a box is.
type handle struct {
	worker string // its id; "" in handles without the prefix
	memory int64  // limit of the box in bytes
	shared shared
	inner  driver.Handle
}

// shared describes a supplied worker that several boxes may share; zero if none may.
type shared struct {
	Boxes     int               `json:"boxes"` // that may share it
	Resources sandbox.Resources `json:"resources"`
	RootFS    string            `json:"rootfs"`
}

func (h handle) encode() driver.Handle {
	var more []byte
	if h.shared != (shared{}) {
		text, _ := json.Marshal(h.shared) // cannot fail
		more = append([]byte(" "), text...)
	}
	return append(fmt.Appendf(nil, "%s%s %d%s\n", handlePrefix, h.worker, h.memory, more), h.inner...)
}

func parseHandle(h driver.Handle) handle {
	parsed := handle{inner: h}
	text, found := bytes.CutPrefix(h, []byte(handlePrefix))
	head, inner, complete := bytes.Cut(text, []byte("\n"))
	var worker string
	var memory int64
	if !found || !complete {
		return parsed
	}
	if n, err := fmt.Sscanf(string(head), "%s %d", &worker, &memory); n != 2 || err != nil {
		return parsed
	}
	parsed = handle{worker: worker, memory: memory, inner: inner}
	if _, more, found := bytes.Cut(head, []byte("{")); found {
		_ = json.Unmarshal(append([]byte("{"), more...), &parsed.shared) // without it the worker gets no other box
	}
	return parsed
}
