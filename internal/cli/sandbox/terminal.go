package sandbox

import (
	"crypto/rand"
	"errors"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/term"

	"github.com/modbox/modbox/client"
)

// terminal is the user's side of a command: a terminal in raw mode, or pipes.
type terminal struct {
	out     *os.File // the terminal whose size counts; nil without one
	restore func()   // restores the terminal; may be called twice
	// piped is true if the input is a pipe or file, and so certainly meant for the command.
	piped bool
}

// openTerminal checks the input, and puts it into raw mode for tty. It fails for tty if the input
// is no terminal.
func openTerminal(stdin io.Reader, stdout io.Writer, tty bool) (*terminal, error) {
	t := &terminal{restore: func() {}}
	in, ok := stdin.(*os.File)
	if ok && !tty {
		info, err := in.Stat()
		t.piped = err == nil && (info.Mode()&(os.ModeNamedPipe|os.ModeSocket) != 0 || info.Mode().IsRegular())
	}
	if !tty {
		return t, nil
	}
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return nil, errors.New("--tty needs a terminal as standard input")
	}
	t.out = in
	if out, ok := stdout.(*os.File); ok && term.IsTerminal(int(out.Fd())) {
		t.out = out
	}
	state, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, err
	}
	t.restore = sync.OnceFunc(func() { _ = term.Restore(int(in.Fd()), state) }) // nothing can be done about a failure
	return t, nil
}

// size returns the terminal's size; nil without a terminal.
func (t *terminal) size() *client.Size {
	if t.out == nil {
		return nil
	}
	cols, rows, err := term.GetSize(int(t.out.Fd()))
	if err != nil || cols <= 0 || rows <= 0 {
		return &client.Size{Rows: 24, Cols: 80}
	}
	return &client.Size{Rows: uint16(min(rows, 0xffff)), Cols: uint16(min(cols, 0xffff))}
}

// watchSize calls changed when the terminal's size changes, until stop is called.
func (t *terminal) watchSize(changed func(client.Size)) (stop func()) {
	if t.out == nil {
		return func() {}
	}
	resized := make(chan os.Signal, 1)
	done := make(chan struct{})
	signal.Notify(resized, syscall.SIGWINCH)
	go func() {
		for {
			select {
			case <-resized:
				changed(*t.size())
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(resized)
		close(done)
	}
}

// forwardInput sends stdin and its end. Errors show when the output is read.
func forwardInput(stdin io.Reader, s *client.Session) {
	if _, err := io.Copy(s, stdin); err == nil {
		_ = s.CloseStdin()
	}
}

// randomName returns a few random lower-case characters.
func randomName() string { return strings.ToLower(rand.Text()[:10]) }
