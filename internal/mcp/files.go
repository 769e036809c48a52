package mcp

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/client/sandbox"
)

// maxEntries bounds the entries of a directory in an answer.
const maxEntries = 200

type readArguments struct {
	Path    string `json:"path" jsonschema:"path of the file, absolute or relative to the image's working directory"`
	Offset  int64  `json:"offset,omitempty" jsonschema:"byte at which to begin; 0 when omitted"`
	Sandbox string `json:"sandbox,omitempty" jsonschema:"id or name of a sandbox, instead of the session's own"`
}

func (s *Session) readFile(ctx context.Context, a readArguments) (*sdk.CallToolResult, error) {
	if a.Offset < 0 {
		return nil, &client.Error{Code: client.Invalid, Message: "offset must not be negative"}
	}
	return s.in(ctx, a.Sandbox, 0, func(sbx *sandbox.Sandbox) (_ *sdk.CallToolResult, err error) {
		r, err := sbx.Files.Open(ctx, a.Path)
		if err != nil {
			return nil, err
		}
		defer r.Close() // the rest is not wanted
		if _, err := io.CopyN(io.Discard, r, a.Offset); errors.Is(err, io.EOF) {
			return nil, &client.Error{Code: client.Invalid, Message: fmt.Sprintf("offset %d is behind the end of %s", a.Offset, a.Path)}
		} else if err != nil {
			return nil, err
		}
		part, err := io.ReadAll(io.LimitReader(r, maxText))
		if err != nil {
			return nil, err
		}
		if mime := imageType(part); a.Offset == 0 && mime != "" {
			return showImage(a.Path, mime, part, r)
		}
		return showText(a, part, len(part) == maxText)
	})
}

// showText returns a part of a text file. full says that the part has as many bytes as fit.
func showText(a readArguments, part []byte, full bool) (*sdk.CallToolResult, error) {
	if full { // a character may be cut
		for i := 1; i <= utf8.UTFMax && i < len(part); i++ {
			if at := len(part) - i; utf8.RuneStart(part[at]) {
				if !utf8.FullRune(part[at:]) {
					part = part[:at]
				}
				break
			}
		}
	}
	if !utf8.Valid(part) {
		return nil, &client.Error{Code: client.Unsupported, Message: fmt.Sprintf("%s is neither text nor an image from byte %d on; use exec with a program that understands it, such as xxd", a.Path, a.Offset)}
	}
	content := text(string(part))
	if full {
		content.Content = append(content.Content, &sdk.TextContent{Text: fmt.Sprintf("[there may be more: go on with offset %d]", a.Offset+int64(len(part)))})
	}
	return content, nil
}

// showImage returns an image, of which part is the beginning.
func showImage(path, mime string, part []byte, rest io.Reader) (*sdk.CallToolResult, error) {
	more, err := io.ReadAll(io.LimitReader(rest, maxImage+1-int64(len(part))))
	if err != nil {
		return nil, err
	}
	var list images
	if !list.add(mime, append(part, more...)) || len(list.shown) == 0 {
		return nil, &client.Error{Code: client.TooLarge, Message: fmt.Sprintf("%s is an image of more than %d MiB; make it smaller with exec or run_code", path, maxImage>>20)}
	}
	return &sdk.CallToolResult{Content: list.shown}, nil
}

// imageType returns the type of an image that models understand; "" for other files.
func imageType(beginning []byte) string {
	switch mime := http.DetectContentType(beginning); mime {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
		return mime
	}
	return ""
}

type writeArguments struct {
	Path     string `json:"path" jsonschema:"path of the file, absolute or relative to the image's working directory"`
	Content  string `json:"content" jsonschema:"content of the file"`
	Encoding string `json:"encoding,omitempty" jsonschema:"text, or base64 for bytes; text when omitted"`
	Sandbox  string `json:"sandbox,omitempty" jsonschema:"id or name of a sandbox, instead of the session's own"`
}

func (s *Session) writeFile(ctx context.Context, a writeArguments) (*sdk.CallToolResult, error) {
	content := []byte(a.Content)
	switch a.Encoding {
	case "", "text":
	case "base64":
		var err error
		if content, err = base64.StdEncoding.DecodeString(a.Content); err != nil {
			return nil, &client.Error{Code: client.Invalid, Message: fmt.Sprintf("content is not base64: %v", err)}
		}
	default:
		return nil, &client.Error{Code: client.Invalid, Message: fmt.Sprintf("encoding is %q, and must be text or base64", a.Encoding)}
	}
	return s.in(ctx, a.Sandbox, 0, func(sbx *sandbox.Sandbox) (*sdk.CallToolResult, error) {
		if err := sbx.Files.Write(ctx, a.Path, content); err != nil {
			return nil, err
		}
		return text(fmt.Sprintf("%d bytes are written to %s", len(content), a.Path)), nil
	})
}

type listArguments struct {
	Path    string `json:"path,omitempty" jsonschema:"path of the directory; the image's working directory when omitted"`
	Sandbox string `json:"sandbox,omitempty" jsonschema:"id or name of a sandbox, instead of the session's own"`
}

// entry is an entry of a directory in an answer.
type entry struct {
	Name string `json:"name"`
	Type string `json:"type"`
	Size int64  `json:"size_bytes"`
}

func (s *Session) listFiles(ctx context.Context, a listArguments) (*sdk.CallToolResult, error) {
	path := a.Path
	if path == "" {
		path = "."
	}
	return s.in(ctx, a.Sandbox, 0, func(sbx *sandbox.Sandbox) (*sdk.CallToolResult, error) {
		page, err := s.client.Sandboxes.Files.List(sbx.ID, path).Page(ctx, client.PageOptions{Limit: maxEntries})
		if err != nil {
			return nil, err
		}
		list := struct {
			Entries []entry `json:"entries"`
			More    bool    `json:"more,omitempty"` // there are more entries
		}{Entries: []entry{}, More: page.NextCursor != ""}
		for _, f := range page.Items {
			list.Entries = append(list.Entries, entry{f.Name, f.Type, f.SizeBytes})
		}
		return answer(list)
	})
}
