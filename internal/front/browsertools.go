package front

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const browserInstructions = `Drives the browser of this sandbox, which people watch at /vnc/. Tools use the tab that was last used, unless "tab" names another. Dialogs of pages are accepted.`

// browserServer returns an MCP server of the browser at an address.
func browserServer(version, address string) http.Handler {
	b := &browser{address: address}
	s := sdk.NewServer(&sdk.Implementation{Name: "modbox-browser", Title: "Browser of a Modbox sandbox", Version: version}, &sdk.ServerOptions{Instructions: browserInstructions})
	tool(s, "browser_navigate", "Open an address", "Open a URL in the tab, wait until it is loaded, and return its title and URL.", kind{}, b.navigate)
	tool(s, "browser_read", "Read the page", "Return the visible text of the page, or of the first element that a CSS selector matches.", kind{reads: true}, b.read)
	tool(s, "browser_elements", "List elements", "List the visible links, buttons and fields of the page, with selectors for browser_click and browser_type.", kind{reads: true}, b.elements)
	tool(s, "browser_click", "Click", "Click the first element that a CSS selector matches.", kind{}, b.click)
	tool(s, "browser_type", "Type", "Replace the text of a field, the first element that a CSS selector matches, and press Enter if submit is true.", kind{}, b.typeText)
	tool(s, "browser_evaluate", "Evaluate JavaScript", "Evaluate a JavaScript expression in the page, await it if it is a promise, and return its value as JSON.", kind{}, b.evaluate)
	tool(s, "browser_screenshot", "Take a screenshot", "Return the visible part of the page as a PNG.", kind{reads: true}, b.screenshot)
	tool(s, "browser_tabs", "List tabs", "List the tabs, the last used first.", kind{reads: true}, b.listTabs)
	tool(s, "browser_new_tab", "Open a tab", "Open a URL in a new tab.", kind{}, b.newTab)
	tool(s, "browser_close_tab", "Close a tab", "Close a tab.", kind{destroys: true}, b.closeTab)
	return serve(s)
}

type tabArguments struct {
	Tab string `json:"tab,omitempty" jsonschema:"id of a tab; the tab that was last used when omitted"`
}

type navigateArguments struct {
	URL string `json:"url" jsonschema:"address to open, such as https://example.com"`
	tabArguments
}

func (b *browser) navigate(ctx context.Context, a navigateArguments) (res *sdk.CallToolResult, err error) {
	err = b.in(ctx, a.Tab, func(ctx context.Context, s *session) error {
		_ = s.call(ctx, "Page.bringToFront", nil, nil) // for viewers only; the tool works without
		var r struct{ ErrorText string }
		if err := s.call(ctx, "Page.navigate", map[string]any{"url": a.URL}, &r); err != nil {
			return err
		}
		if r.ErrorText != "" {
			return fmt.Errorf("%s does not open: %s", a.URL, r.ErrorText)
		}
		if err := s.loaded(ctx); err != nil {
			return err
		}
		res, err = s.where(ctx)
		return err
	})
	return res, err
}

// where returns the title and the address of the page.
func (s *session) where(ctx context.Context) (*sdk.CallToolResult, error) {
	var at [2]string
	if err := s.evaluate(ctx, "[document.title, location.href]", &at); err != nil {
		return nil, err
	}
	return text("title: %s\nurl: %s\n", clip(at[0]), clip(at[1])), nil
}

type readPageArguments struct {
	Selector string `json:"selector,omitempty" jsonschema:"CSS selector; the whole page when omitted"`
	tabArguments
}

func (b *browser) read(ctx context.Context, a readPageArguments) (res *sdk.CallToolResult, err error) {
	selector := a.Selector
	if selector == "" {
		selector = "body"
	}
	err = b.in(ctx, a.Tab, func(ctx context.Context, s *session) error {
		var content string
		if err := s.evaluate(ctx, element(selector)+".innerText", &content); err != nil {
			return err
		}
		res = text("%s", clip(content))
		return nil
	})
	return res, err
}

// element returns an expression for the first element that a selector matches; it throws without one.
func element(selector string) string {
	quoted, _ := json.Marshal(selector) // never fails for a string
	return `((s) => { const e = document.querySelector(s); if (!e) throw new Error("no element matches " + s); return e; })(` + string(quoted) + `)`
}

// listing lists the elements of a page that a user can operate.
const listing = `(() => {
	const path = (e) => {
		if (e.id) return "#" + CSS.escape(e.id);
		if (!e.parentElement) return e.localName;
		return path(e.parentElement) + " > " + e.localName + ":nth-child(" + ([...e.parentElement.children].indexOf(e) + 1) + ")";
	};
	return [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [onclick], [role=button], [role=link], [contenteditable=true]")]
		.filter((e) => e.checkVisibility() && e.getClientRects().length && e.type !== "hidden").slice(0, 200)
		.map((e) => e.localName + (e.type ? "[" + e.type + "]" : "") + " " + JSON.stringify((e.innerText || e.value || e.placeholder || e.ariaLabel || e.name || "").trim().slice(0, 80)) + ": " + path(e)).join("\n");
})()`

func (b *browser) elements(ctx context.Context, a tabArguments) (res *sdk.CallToolResult, err error) {
	err = b.in(ctx, a.Tab, func(ctx context.Context, s *session) error {
		var list string
		if err := s.evaluate(ctx, listing, &list); err != nil {
			return err
		}
		res = text("%s", clip(list))
		return nil
	})
	return res, err
}

type elementArguments struct {
	Selector string `json:"selector" jsonschema:"CSS selector"`
	tabArguments
}

func (b *browser) click(ctx context.Context, a elementArguments) (res *sdk.CallToolResult, err error) {
	err = b.in(ctx, a.Tab, func(ctx context.Context, s *session) error {
		var at struct{ X, Y float64 }
		expression := `((e) => { e.scrollIntoView({ block: "center", inline: "center", behavior: "instant" }); const r = e.getBoundingClientRect(); return { x: r.x + r.width / 2, y: r.y + r.height / 2 }; })(` + element(a.Selector) + `)`
		if err := s.evaluate(ctx, expression, &at); err != nil {
			return err
		}
		for _, kind := range []string{"mouseMoved", "mousePressed", "mouseReleased"} {
			event := map[string]any{"type": kind, "x": at.X, "y": at.Y}
			if kind != "mouseMoved" {
				event["button"], event["clickCount"] = "left", 1
			}
			if err := s.call(ctx, "Input.dispatchMouseEvent", event, nil); err != nil {
				return err
			}
		}
		if err := s.loaded(ctx); err != nil {
			return err
		}
		res, err = s.where(ctx)
		return err
	})
	return res, err
}

type typeArguments struct {
	Selector string `json:"selector" jsonschema:"CSS selector of the field"`
	Text     string `json:"text" jsonschema:"text to type"`
	Submit   bool   `json:"submit,omitempty" jsonschema:"press Enter at the end"`
	tabArguments
}

func (b *browser) typeText(ctx context.Context, a typeArguments) (res *sdk.CallToolResult, err error) {
	err = b.in(ctx, a.Tab, func(ctx context.Context, s *session) error {
		expression := `((e) => { e.focus(); if (e.select) e.select(); else getSelection().selectAllChildren(e); })(` + element(a.Selector) + `)`
		if err := s.evaluate(ctx, expression, nil); err != nil {
			return err
		}
		if err := s.call(ctx, "Input.insertText", map[string]any{"text": a.Text}, nil); err != nil {
			return err
		}
		if a.Submit {
			for _, kind := range []string{"keyDown", "keyUp"} {
				event := map[string]any{"type": kind, "key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13}
				if kind == "keyDown" {
					event["text"] = "\r"
				}
				if err := s.call(ctx, "Input.dispatchKeyEvent", event, nil); err != nil {
					return err
				}
			}
			if err := s.loaded(ctx); err != nil {
				return err
			}
		}
		res, err = s.where(ctx)
		return err
	})
	return res, err
}

type evaluateArguments struct {
	Expression string `json:"expression" jsonschema:"JavaScript expression"`
	tabArguments
}

func (b *browser) evaluate(ctx context.Context, a evaluateArguments) (res *sdk.CallToolResult, err error) {
	err = b.in(ctx, a.Tab, func(ctx context.Context, s *session) error {
		var value json.RawMessage
		if err := s.evaluate(ctx, a.Expression, &value); err != nil {
			return err
		}
		res = text("%s", clip(string(value)))
		return nil
	})
	return res, err
}

func (b *browser) screenshot(ctx context.Context, a tabArguments) (res *sdk.CallToolResult, err error) {
	err = b.in(ctx, a.Tab, func(ctx context.Context, s *session) error {
		var r struct{ Data []byte }
		if err := s.call(ctx, "Page.captureScreenshot", map[string]any{"format": "png"}, &r); err != nil {
			return err
		}
		res = &sdk.CallToolResult{Content: []sdk.Content{&sdk.ImageContent{MIMEType: "image/png", Data: r.Data}}}
		return nil
	})
	return res, err
}

func (b *browser) listTabs(ctx context.Context, _ struct{}) (*sdk.CallToolResult, error) {
	pages, err := b.tabs(ctx)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(pages)
	if err != nil {
		return nil, err
	}
	return text("%s", clip(string(data))), nil
}

type newTabArguments struct {
	URL string `json:"url" jsonschema:"address to open"`
}

func (b *browser) newTab(ctx context.Context, a newTabArguments) (*sdk.CallToolResult, error) {
	t, err := b.open(ctx, "about:blank")
	if err != nil {
		return nil, err
	}
	res, err := b.navigate(ctx, navigateArguments{URL: a.URL, tabArguments: tabArguments{Tab: t.ID}})
	if err != nil {
		return nil, err
	}
	res.Content = append(res.Content, &sdk.TextContent{Text: "tab: " + t.ID + "\n"})
	return res, nil
}

type closeTabArguments struct {
	Tab string `json:"tab" jsonschema:"id of the tab"`
}

func (b *browser) closeTab(ctx context.Context, a closeTabArguments) (*sdk.CallToolResult, error) {
	if strings.Trim(a.Tab, "0123456789ABCDEFabcdef-") != "" || a.Tab == "" {
		return nil, errors.New("tab must be the id of a tab, as browser_tabs lists it")
	}
	if err := b.get(ctx, http.MethodGet, "/json/close/"+a.Tab, nil); err != nil {
		return nil, err
	}
	if err := b.gone(ctx, a.Tab); err != nil {
		return nil, err
	}
	return text("closed"), nil
}
