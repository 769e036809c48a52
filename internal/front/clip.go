package front

import (
	"fmt"
	"strings"
)

// maxText bounds each text of an answer, in bytes: a model reads all of it.
const maxText = 32 << 10

// clipped keeps the beginning and the end of an output, half of [maxText] each.
type clipped struct {
	head, tail []byte
	total      int
}

// Write implements [io.Writer]. It never fails.
func (c *clipped) Write(p []byte) (int, error) {
	const half = maxText / 2
	c.total += len(p)
	n := min(len(p), half-len(c.head))
	c.head = append(c.head, p[:n]...)
	c.tail = append(c.tail, p[max(n, len(p)-half):]...)
	c.tail = c.tail[max(0, len(c.tail)-half):]
	return len(p), nil
}

// String returns the output, with a note about bytes that it leaves out.
func (c *clipped) String() string {
	head := string(c.head)
	if left := c.total - len(c.head) - len(c.tail); left > 0 {
		head += fmt.Sprintf("\n[... %d bytes left out ...]\n", left)
	}
	return strings.ToValidUTF8(head+string(c.tail), "\uFFFD")
}

// clip returns a text as [clipped] keeps it.
func clip(s string) string {
	var c clipped
	_, _ = c.Write([]byte(s)) // never fails
	return c.String()
}
