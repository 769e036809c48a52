package client

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// ImageProgress is a moment of a pull.
type ImageProgress struct {
	// Phase is "waiting", "pulling", in which Done and Total count bytes, or "writing".
	Phase string `json:"phase"`
	// Done and Total count what Message is about; Total is 0 when that is not known.
	Done    int64  `json:"done"`
	Total   int64  `json:"total"`
	Message string `json:"message"`
}

// PullImage has the server ask a registry for an image and pull what it lacks of
// it. Creating a sandbox does so by itself, unless the server has the image.
// Progress, which may be nil, is told what happens until PullImage returns. When
// ctx ends the pull goes on only if others wait for it.
//
// Errors: Invalid, NotFound, Forbidden, Unsupported, TooLarge, Timeout and
// Unavailable, with the registry's words.
func (c *Client) PullImage(ctx context.Context, ref string, progress func(ImageProgress)) (*Image, error) {
	body := struct {
		Image string `json:"image"`
	}{ref}
	resp, err := c.send(ctx, request{method: http.MethodPost, path: "/v1/images/pull", body: body, repeat: true})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	lines := bufio.NewReaderSize(resp.Body, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, fmt.Errorf("pull %s: %w", ref, err)
		}
		var m struct {
			ImageProgress
			Type  string `json:"type"`
			Code  Code   `json:"code"`
			Image *Image `json:"image"`
		}
		if err := json.Unmarshal(line, &m); err != nil {
			return nil, fmt.Errorf("pull %s: %w", ref, err)
		}
		switch {
		case m.Type == "done" && m.Image != nil:
			return m.Image, nil
		case m.Type == "error":
			return nil, &Error{Code: m.Code, Message: m.Message}
		case m.Type == "progress" && progress != nil:
			progress(m.ImageProgress)
		}
	}
}
