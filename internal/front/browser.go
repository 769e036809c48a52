package front

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/coder/websocket"
)

const (
	// callTime bounds a call of a tool.
	callTime = time.Minute
	// maxFrame bounds a message of the browser, such as a screenshot.
	maxFrame = 32 << 20
)

// browser is Chromium, by its DevTools.
type browser struct{ address string }

// tab is a page of the browser.
type tab struct {
	ID    string `json:"id"`
	Type  string `json:"type,omitempty"`
	Title string `json:"title"`
	URL   string `json:"url"`
}

// get sends a request of the kind of DevTools' HTTP interface and decodes the answer.
func (b *browser) get(ctx context.Context, method, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+b.address+path, nil)
	if err != nil {
		return err
	}
	req.Host = "localhost" // Chromium answers to no other name
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("the browser does not answer: %w", err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxDescription))
	if err != nil {
		return fmt.Errorf("the browser does not answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the browser answers: %.200s", data)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(data, into)
}

// tabs returns the pages, the last used first.
func (b *browser) tabs(ctx context.Context) ([]tab, error) {
	var all []tab
	if err := b.get(ctx, http.MethodGet, "/json/list", &all); err != nil {
		return nil, err
	}
	pages := []tab{}
	for _, t := range all {
		if t.Type == "page" {
			t.Type = ""
			pages = append(pages, t)
		}
	}
	return pages, nil
}

// open opens a page in a new tab.
func (b *browser) open(ctx context.Context, address string) (tab, error) {
	var t tab
	err := b.get(ctx, http.MethodPut, "/json/new?"+url.QueryEscape(address), &t)
	t.Type = ""
	return t, err
}

// find returns a tab by its id, or the tab that was last used; it makes one if there is none.
func (b *browser) find(ctx context.Context, id string) (tab, error) {
	pages, err := b.tabs(ctx)
	if err != nil {
		return tab{}, err
	}
	for _, t := range pages {
		if id == "" || t.ID == id {
			return t, nil
		}
	}
	if id != "" {
		return tab{}, fmt.Errorf("there is no tab %.100q; browser_tabs lists the tabs", id)
	}
	return b.open(ctx, "about:blank")
}

// gone waits until a tab is no longer listed: the browser answers a request to close a tab before it has closed it.
func (b *browser) gone(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, callTime, fmt.Errorf("the browser did not close the tab within %s", callTime))
	defer cancel()
	tick := time.NewTicker(loadPoll)
	defer tick.Stop()
	for {
		pages, err := b.tabs(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil || !slices.ContainsFunc(pages, func(t tab) bool { return t.ID == id }) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// session is a connection to a tab.
type session struct {
	ws   *websocket.Conn
	last int
}

// in connects to a tab and gives use the connection.
func (b *browser) in(ctx context.Context, id string, use func(ctx context.Context, s *session) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, callTime, fmt.Errorf("the page did not answer within %s", callTime))
	defer cancel()
	err := b.connected(ctx, id, use)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (b *browser) connected(ctx context.Context, id string, use func(ctx context.Context, s *session) error) error {
	t, err := b.find(ctx, id)
	if err != nil {
		return err
	}
	ws, resp, err := websocket.Dial(ctx, "ws://"+b.address+"/devtools/page/"+t.ID, &websocket.DialOptions{Host: "localhost"})
	if err != nil {
		return fmt.Errorf("connect to tab %s: %w", t.ID, err)
	}
	if resp.Body != nil {
		defer resp.Body.Close()
	}
	defer ws.CloseNow()
	ws.SetReadLimit(maxFrame)
	s := &session{ws: ws}
	// With its events, dialogs of the page come to wait.
	if err := s.call(ctx, "Page.enable", nil, nil); err != nil {
		return err
	}
	return use(ctx, s)
}

// send sends a command and returns its number.
func (s *session) send(ctx context.Context, method string, params any) (int, error) {
	s.last++
	data, err := json.Marshal(struct {
		ID     int    `json:"id"`
		Method string `json:"method"`
		Params any    `json:"params,omitempty"`
	}{s.last, method, params})
	if err != nil {
		return 0, err
	}
	return s.last, s.ws.Write(ctx, websocket.MessageText, data)
}

// call sends a command and decodes its result. Dialogs that the page opens meanwhile, which stop it,
// are accepted.
func (s *session) call(ctx context.Context, method string, params, into any) error {
	id, err := s.send(ctx, method, params)
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	for {
		_, data, err := s.ws.Read(ctx)
		if err != nil {
			return fmt.Errorf("%s: the tab was closed, or the browser has ended: %w", method, err)
		}
		var m struct {
			ID     int
			Method string
			Result json.RawMessage
			Error  *struct{ Message string }
		}
		if err := json.Unmarshal(data, &m); err != nil {
			return fmt.Errorf("%s: %w", method, err)
		}
		if m.Method == "Page.javascriptDialogOpening" {
			if _, err := s.send(ctx, "Page.handleJavaScriptDialog", map[string]any{"accept": true}); err != nil {
				return err
			}
			continue
		}
		if m.ID != id {
			continue
		}
		if m.Error != nil {
			return fmt.Errorf("%s: %s", method, m.Error.Message)
		}
		if into == nil {
			return nil
		}
		return json.Unmarshal(m.Result, into)
	}
}

// evaluate evaluates an expression in the page, awaits it, and decodes its value.
func (s *session) evaluate(ctx context.Context, expression string, into any) error {
	var r struct {
		Result struct {
			Value       json.RawMessage
			Description string
		}
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	params := map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true, "userGesture": true}
	if err := s.call(ctx, "Runtime.evaluate", params, &r); err != nil {
		return err
	}
	if e := r.ExceptionDetails; e != nil {
		if e.Exception.Description != "" {
			return errors.New(e.Exception.Description)
		}
		return errors.New(e.Text)
	}
	if into == nil {
		return nil
	}
	if len(r.Result.Value) == 0 { // undefined
		r.Result.Value = json.RawMessage("null")
	}
	return json.Unmarshal(r.Result.Value, into)
}

// loadPoll is the pause between looks at a page that loads.
const loadPoll = 100 * time.Millisecond

// loaded waits until the page has loaded, for half of the time of a call at most: many pages never end.
func (s *session) loaded(ctx context.Context) error {
	deadline := time.NewTimer(callTime / 2)
	defer deadline.Stop()
	tick := time.NewTicker(loadPoll)
	defer tick.Stop()
	for {
		var state string
		// A page that is being replaced has no context for it.
		if err := s.evaluate(ctx, "document.readyState", &state); err == nil && state == "complete" || ctx.Err() != nil {
			return ctx.Err()
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
