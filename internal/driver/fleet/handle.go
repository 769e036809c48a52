package fleet

import (
	"bytes"
	"fmt"

	"github.com/modbox/modbox/internal/driver"
)

// handlePrefix begins the handles of boxes. Boxes of a server that had one worker have the handles of their worker's driver.
const handlePrefix = "fleet/1 "

// handle is where a box is.
type handle struct {
	worker string // its id; "" in handles without the prefix
	memory int64  // limit of the box in bytes
	inner  driver.Handle
}

func (h handle) encode() driver.Handle {
	return append(fmt.Appendf(nil, "%s%s %d\n", handlePrefix, h.worker, h.memory), h.inner...)
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
	return handle{worker, memory, inner}
}
