package edge

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

// Talker sends the messages of a stream, as JSON, one a line. After each silence it sends a ping,
// because many programs between server and client close a silent connection. It is safe for
// concurrent use.
type Talker struct {
	every time.Duration

	mu      sync.Mutex
	w       http.ResponseWriter // guarded by mu
	json    *json.Encoder       // to w; guarded by mu
	silence *time.Timer         // guarded by mu
	stopped bool                // guarded by mu
}

// ping is the message that fills a silence.
var ping = struct {
	Type string `json:"type"`
}{"ping"}

// Talk returns a talker that writes to w, with a ping after each silence of a length.
func Talk(w http.ResponseWriter, every time.Duration) *Talker {
	return talk(w, json.NewEncoder(w), every)
}

// TalkASCII returns a talker like Talk, whose messages have characters beyond ASCII only as escapes: for clients that
// decode each piece of an answer on its own, and lose a character whose bytes come in two pieces.
func TalkASCII(w http.ResponseWriter, every time.Duration) *Talker {
	escaped := newASCIIWriter(w)
	to := json.NewEncoder(escaped)
	to.SetEscapeHTML(false) // the writer does it without a longer copy of the message
	return talk(escaped, to, every)
}

func talk(w http.ResponseWriter, to *json.Encoder, every time.Duration) *Talker {
	t := &Talker{every: every, w: w, json: to}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.silence = time.AfterFunc(every, func() {
		_ = t.Send(ping) // a client that is gone ends the request
	})
	return t
}

// Send sends a message. It returns nil after Stop.
func (t *Talker) Send(m any) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return nil
	}
	t.silence.Reset(t.every)
	if err := t.json.Encode(m); err != nil {
		return err
	}
	return http.NewResponseController(t.w).Flush()
}

// Stop ends the pings; nothing is written after it.
func (t *Talker) Stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = true
	t.silence.Stop()
}
