package front

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/creack/pty"
)

const (
	// maxTerminals bounds the terminals. Another ends the terminal that nobody has looked at for the longest.
	maxTerminals = 16
	// recentBytes is how much of a terminal's output a viewer gets that connects again.
	recentBytes = 256 << 10
	// viewerTime bounds a write to a viewer.
	viewerTime = 30 * time.Second
	// maxMessage bounds a message of a viewer.
	maxMessage = 1 << 20
	// maxSize bounds the columns and rows.
	maxSize = 1000
)

// Codes by which the WebSocket of a viewer ends.
const (
	statusEnded    websocket.StatusCode = 4000 // the shell has ended
	statusReplaced websocket.StatusCode = 4001 // another viewer has the terminal
)

// terminals are the shells of web terminals. A shell goes on when its viewer disconnects, and the
// viewer finds it again by the id that it chose.
type terminals struct {
	shell []string
	log   *slog.Logger

	mu   sync.Mutex
	byID map[string]*terminal // guarded by mu
}

// terminal is a shell with a pseudo-terminal.
type terminal struct {
	id  string
	tty *os.File
	cmd *exec.Cmd

	mu     sync.Mutex
	recent []byte    // the end of the output; guarded by mu
	viewer *viewer   // nil without; guarded by mu
	left   time.Time // when the last viewer went; guarded by mu
}

// viewer is a WebSocket that shows a terminal.
type viewer struct {
	out  chan []byte
	done chan struct{} // closed when it ends
	once sync.Once
	why  websocket.StatusCode // 0 if it went by itself; set before done is closed
}

// end ends a viewer. Only the first end counts.
func (v *viewer) end(why websocket.StatusCode) {
	v.once.Do(func() {
		v.why = why
		close(v.done)
	})
}

var terminalID = regexp.MustCompile(`^[A-Za-z0-9-]{8,64}$`)

func newTerminals(shell []string, log *slog.Logger) *terminals {
	return &terminals{shell: shell, log: log, byID: map[string]*terminal{}}
}

// ServeHTTP connects a viewer with the terminal that its query names, which is started if it does not
// exist. Binary messages are input and output. The client's text messages tell the size.
func (t *terminals) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.URL.Query().Get("id")
	if !terminalID.MatchString(id) {
		http.Error(w, "id must be 8 to 64 letters, digits and hyphens", http.StatusBadRequest)
		return
	}
	term, err := t.find(id)
	if err != nil {
		t.log.Error("a terminal does not start", "error", err)
		http.Error(w, "the shell does not start: "+err.Error(), http.StatusInternalServerError)
		return
	}
	if term == nil {
		http.Error(w, "all terminals are in use; close one", http.StatusServiceUnavailable)
		return
	}
	ws, err := accept(w, r)
	if err != nil {
		return // Accept has answered
	}
	defer ws.CloseNow()
	ws.SetReadLimit(maxMessage)
	v := &viewer{out: make(chan []byte, 16), done: make(chan struct{})}
	term.attach(v)
	defer term.detach(v)
	go func() {
		defer v.end(0)
		term.input(r.Context(), ws)
	}()
	v.show(r.Context(), ws)
}

// show sends output to a viewer until it ends.
func (v *viewer) show(ctx context.Context, ws *websocket.Conn) {
	for ended := false; ; {
		var data []byte
		select {
		case data = <-v.out:
		default:
			if ended {
				if v.why != 0 {
					_ = ws.Close(v.why, "") // the viewer may be gone
				}
				return
			}
			select {
			case data = <-v.out:
			case <-v.done:
				ended = true // earlier output is still sent
				continue
			}
		}
		ctx, cancel := context.WithTimeout(ctx, viewerTime)
		err := ws.Write(ctx, websocket.MessageBinary, data)
		cancel()
		if err != nil {
			v.end(0)
			return
		}
	}
}

// find returns the terminal of an id, and starts it if necessary; nil if there are too many.
func (t *terminals) find(id string) (*terminal, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if term := t.byID[id]; term != nil {
		return term, nil
	}
	if len(t.byID) >= maxTerminals && !t.endOldest() {
		return nil, nil
	}
	cmd := exec.Command(t.shell[0], t.shell[1:]...)
	cmd.Env = append(os.Environ(), "TERM=xterm-256color", "COLORTERM=truecolor")
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Cols: 80, Rows: 24})
	if err != nil {
		return nil, err
	}
	term := &terminal{id: id, tty: tty, cmd: cmd, left: time.Now()}
	t.byID[id] = term
	go t.pump(term)
	return term, nil
}

// endOldest hangs up the terminal that has been without a viewer for the longest, and reports whether
// there is such a terminal. The caller holds mu.
func (t *terminals) endOldest() bool {
	var oldest *terminal
	var left time.Time
	for _, term := range t.byID {
		term.mu.Lock()
		if term.viewer == nil && (oldest == nil || term.left.Before(left)) {
			oldest, left = term, term.left
		}
		term.mu.Unlock()
	}
	if oldest == nil {
		return false
	}
	delete(t.byID, oldest.id)
	_ = oldest.tty.Close() // the shell gets SIGHUP
	return true
}

// pump reads the output of a terminal to the end of its shell.
func (t *terminals) pump(term *terminal) {
	buf := make([]byte, 32<<10)
	for {
		n, err := term.tty.Read(buf)
		if n > 0 {
			term.output(append([]byte(nil), buf[:n]...))
		}
		if err != nil {
			break
		}
	}
	_ = term.tty.Close() // a second time if it was hung up
	t.mu.Lock()
	if t.byID[term.id] == term {
		delete(t.byID, term.id)
	}
	t.mu.Unlock()
	term.mu.Lock()
	v := term.viewer
	term.viewer = nil
	term.mu.Unlock()
	if v != nil {
		v.end(statusEnded)
	}
	_ = term.cmd.Wait() // its exit code is of no interest
}

// output keeps output and gives it to the viewer, who may make it wait.
func (term *terminal) output(data []byte) {
	term.mu.Lock()
	term.recent = append(term.recent, data...)
	if len(term.recent) > 2*recentBytes {
		term.recent = append([]byte(nil), term.recent[len(term.recent)-recentBytes:]...)
	}
	v := term.viewer
	term.mu.Unlock()
	if v == nil {
		return
	}
	select {
	case v.out <- data:
	case <-v.done:
	}
}

// attach gives a terminal a viewer, in place of the one it has.
func (term *terminal) attach(v *viewer) {
	term.mu.Lock()
	old := term.viewer
	term.viewer = v
	recent := term.recent[max(0, len(term.recent)-recentBytes):]
	if len(recent) > 0 {
		v.out <- append([]byte(nil), recent...) // never waits: the channel is empty
	}
	term.mu.Unlock()
	if old != nil {
		old.end(statusReplaced)
	}
}

func (term *terminal) detach(v *viewer) {
	term.mu.Lock()
	defer term.mu.Unlock()
	if term.viewer == v {
		term.viewer, term.left = nil, time.Now()
	}
}

// input passes on what a viewer types, until it goes.
func (term *terminal) input(ctx context.Context, ws *websocket.Conn) {
	for {
		kind, data, err := ws.Read(ctx)
		if err != nil {
			return
		}
		if kind == websocket.MessageBinary {
			if _, err := term.tty.Write(data); err != nil {
				return
			}
			continue
		}
		var size struct{ Cols, Rows uint16 }
		if json.Unmarshal(data, &size) == nil && size.Cols > 0 && size.Rows > 0 && size.Cols <= maxSize && size.Rows <= maxSize {
			_ = pty.Setsize(term.tty, &pty.Winsize{Cols: size.Cols, Rows: size.Rows}) // fails when the shell has just ended
		}
	}
}
