package code

import (
	"bytes"
	"errors"
	"io"
	"sync"
)

// errInterrupt is the error of a read at Ctrl-C.
var errInterrupt = errors.New("interrupted")

const (
	ctrlC    = 3
	typedMax = 64 << 10 // bytes typed while code runs; more are dropped
)

// keyboard reads a terminal in raw mode: keys typed while code runs stay for the next line,
// except for Ctrl-C.
type keyboard struct {
	changed chan struct{} // holds a token after each change
	pressed chan struct{} // holds a token after Ctrl-C

	mu    sync.Mutex
	typed []byte // guarded by mu
	err   error  // of the terminal; guarded by mu
}

// newKeyboard returns a keyboard that reads in until its end, in a goroutine.
func newKeyboard(in io.Reader) *keyboard {
	k := &keyboard{changed: make(chan struct{}, 1), pressed: make(chan struct{}, 1)}
	go func() {
		for buf := make([]byte, 4096); ; {
			n, err := in.Read(buf)
			k.add(buf[:n], err)
			if err != nil {
				return
			}
		}
	}()
	return k
}

// add adds typed keys. Ctrl-C drops the keys typed before it.
func (k *keyboard) add(b []byte, err error) {
	k.mu.Lock()
	if i := bytes.LastIndexByte(b, ctrlC); i >= 0 {
		k.typed, b = nil, b[i+1:]
		signal(k.pressed)
	}
	k.typed = append(k.typed, b[:min(len(b), typedMax-len(k.typed))]...)
	k.err = err
	k.mu.Unlock()
	signal(k.changed)
}

// signal puts a token into a channel for one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Read implements [io.Reader]. Errors: errInterrupt at Ctrl-C; the terminal's.
func (k *keyboard) Read(p []byte) (int, error) {
	for {
		select {
		case <-k.pressed:
			return 0, errInterrupt
		default:
		}
		k.mu.Lock()
		n := copy(p, k.typed)
		k.typed = k.typed[n:]
		err := k.err
		k.mu.Unlock()
		if n > 0 {
			return n, nil
		}
		if err != nil {
			return 0, err
		}
		<-k.changed
	}
}
