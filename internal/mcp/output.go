package mcp

import (
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// maxText bounds each text of an answer, in bytes: a model reads all of it.
	maxText = 32 << 10
	// maxImage bounds an image, and maxImages all images of an answer, in bytes.
	maxImage  = 4 << 20
	maxImages = 12 << 20
)

// clipped keeps the beginning and the end of an output, half of [maxText] each.
type clipped struct {
	head, tail []byte
	total      int
}

// Write implements [io.Writer]. It never fails.
func (c *clipped) Write(p []byte) (int, error) {
	const half = maxText / 2
	n := len(p)
	c.total += n
	k := min(n, half-len(c.head))
	c.head = append(c.head, p[:k]...)
	c.tail = append(c.tail, p[max(k, n-half):]...)
	if len(c.tail) > half {
		c.tail = append(c.tail[:0], c.tail[len(c.tail)-half:]...)
	}
	return n, nil
}

// String returns the output, with a note about bytes that it leaves out.
func (c *clipped) String() string {
	head, tail := string(c.head), string(c.tail)
	if left := c.total - len(head) - len(tail); left > 0 {
		head += fmt.Sprintf("\n[... %d bytes left out ...]\n", left)
	}
	return strings.ToValidUTF8(head+tail, "\uFFFD")
}

// clip returns a text as [clipped] keeps it.
func clip(s string) string {
	var c clipped
	_, _ = c.Write([]byte(s)) // never fails
	return c.String()
}

// images are the images of an answer.
type images struct {
	shown   []sdk.Content
	bytes   int
	omitted int
}

// add adds an image, or counts it as left out; it reports false for no image.
func (i *images) add(mime string, data []byte) bool {
	switch {
	case len(data) == 0:
		return false
	case len(data) > maxImage || i.bytes+len(data) > maxImages:
		i.omitted++
	default:
		i.bytes += len(data)
		i.shown = append(i.shown, &sdk.ImageContent{MIMEType: mime, Data: data})
	}
	return true
}

// leftOut returns a line about images that are too large, or "".
func (i *images) leftOut() string {
	if i.omitted == 0 {
		return ""
	}
	return fmt.Sprintf("[%d images left out: an image may have %d MiB, and all images together %d MiB]\n", i.omitted, maxImage>>20, maxImages>>20)
}
