package mcp

import (
	"bytes"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/modbox/modbox/client/sandbox"
)

func TestClipped(t *testing.T) {
	for name, parts := range map[string][]string{
		"one_write":    {strings.Repeat("a", maxText) + "middle" + strings.Repeat("z", maxText)},
		"many_writes":  {strings.Repeat("a", maxText), "middle", strings.Repeat("z", maxText)},
		"small_writes": strings.Split(strings.Repeat("a", maxText)+"middle"+strings.Repeat("z", maxText), ""),
	} {
		t.Run(name, func(t *testing.T) {
			var c clipped
			for _, p := range parts {
				_, _ = c.Write([]byte(p))
			}
			want := strings.Repeat("a", maxText/2) + "\n[... 32774 bytes left out ...]\n" + strings.Repeat("z", maxText/2)
			if got := c.String(); got != want {
				t.Errorf("%d bytes, want %d: %.60q … %.60q", len(got), len(want), got, got[len(got)-60:])
			}
		})
	}
	whole := strings.Repeat("ab", maxText/2)
	if got := clip(whole); got != whole {
		t.Errorf("%d bytes that fit become %d", len(whole), len(got))
	}
	if got := clip("a\xffb"); got != "a\uFFFDb" {
		t.Errorf("clip = %q, want UTF-8", got)
	}
}

func TestShowCode(t *testing.T) {
	png := []byte("\x89PNG\r\n\x1a\n")
	r := showCode(&sandbox.CodeResult{
		Status: "error", Stdout: "out\n", Restarted: true, Truncated: true,
		Results: []sandbox.CodeOutput{
			{Data: map[string]any{"image/png": "iVBORw0KGgo=", "text/plain": "<Figure>"}},
			{Main: true, Data: map[string]any{"text/html": "<b>1</b>"}},
		},
		Error: &sandbox.CodeError{Name: "E", Value: "v", Traceback: []string{"line 1"}},
	})
	if len(r.Content) != 2 || r.IsError {
		t.Fatalf("%+v", r)
	}
	want := "The interpreter was started again; the variables of earlier calls are lost.\nstatus: error\nstdout:\nout\nresult:\n<b>1</b>\nerror:\nE: v\nline 1\n[the server left out a part of the output]\n"
	if got := r.Content[0].(*sdk.TextContent).Text; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if image := r.Content[1].(*sdk.ImageContent); image.MIMEType != "image/png" || !bytes.Equal(image.Data, png) {
		t.Errorf("%+v", image)
	}
	if got := showCode(&sandbox.CodeResult{Status: "ok"}).Content[0].(*sdk.TextContent).Text; got != "no output\n" {
		t.Errorf("code without output = %q", got)
	}
}

func TestImagesAreBounded(t *testing.T) {
	var list images
	if list.add("image/png", nil) {
		t.Error("an image without bytes counts")
	}
	list.add("image/png", make([]byte, maxImage+1))
	for range 4 {
		list.add("image/png", make([]byte, maxImage))
	}
	if len(list.shown) != 3 || !strings.Contains(list.leftOut(), "[2 images left out") {
		t.Errorf("%d images, %q", len(list.shown), list.leftOut())
	}
}

func TestShowTextEndsWithACharacter(t *testing.T) {
	part := []byte(strings.Repeat("a", maxText-1) + "é")[:maxText]
	r, err := showText(readArguments{Path: "f", Offset: 10}, part, true)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Content[1].(*sdk.TextContent).Text; got != "[there may be more: go on with offset 32777]" {
		t.Errorf("%q", got)
	}
	if _, err := showText(readArguments{Path: "f"}, []byte{0xff, 0xfe}, false); err == nil {
		t.Error("bytes that are no text are shown")
	}
}
