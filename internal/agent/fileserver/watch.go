package fileserver

import (
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/agent/answer"
	"github.com/modbox/modbox/internal/agentapi"
)

const (
	// maxWatches is the limit for the whole sandbox.
	maxWatches = 64
	// watchWait is how long a watch beyond maxWatches waits for another to end.
	watchWait = 5 * time.Second
	// maxSeen bounds the paths remembered to avoid reporting them twice.
	maxSeen = 1 << 16
	// moveGrace is how long the second event of a rename may take.
	moveGrace = 20 * time.Millisecond
	// watchMask has the events for which directories are watched.
	watchMask = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO |
		unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR | unix.IN_EXCL_UNLINK
)

// Watch serves GET /files/watch: the changes of a directory, until the client disconnects.
func (s *Server) Watch(w http.ResponseWriter, r *http.Request) error {
	if err := s.takeWatch(r.Context()); err != nil {
		return err
	}
	defer func() { <-s.watches }()
	q := r.URL.Query()
	p, err := s.queryPlace(q)
	if err != nil {
		return err
	}
	defer p.close()
	if q.Has("beneath") {
		return answer.Invalid("the path of a watch must be absolute")
	}
	fw, err := s.newFileWatch(p, q.Get("recursive") == "true")
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- fw.run() }()
	err = fw.send(r.Context(), w)
	fw.close()
	broke := <-ended // matters when nothing else ended the sending
	if err != nil || broke != nil {
		return answer.ErrAborted
	}
	return nil
}

// takeWatch counts a watch. A client that ends a watch and starts it again may get here before the
// end of the old watch does, so takeWatch waits a moment.
func (s *Server) takeWatch(ctx context.Context) error {
	select {
	case s.watches <- struct{}{}:
		return nil
	default:
	}
	tooLong := time.NewTimer(s.opts.WatchWait)
	defer tooLong.Stop()
	select {
	case s.watches <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-tooLong.C:
		return answer.Errorf(agentapi.CodeTooMany, "the sandbox already has %d file watches", maxWatches)
	}
}

// fileWatch converts inotify's events for a tree of directories. All of it but the queue belongs to
// the goroutine of run.
type fileWatch struct {
	inotify   *os.File
	root      string // the watched directory, as a path of the system
	path      string // the same, as shown to the host
	only      string // the name in it that is watched, "" for all
	recursive bool
	maxDirs   int
	queue     *eventQueue

	// dirs are the watched directories, relative to the root.
	dirs map[int32]string
	// seen are paths that were found in a new directory and reported as created, although inotify
	// may still report the same.
	seen map[string]bool
	// leaving are directories that were moved, possibly out of the tree.
	leaving map[uint32]departure
	limited bool // the limit was reported
}

// newFileWatch returns a watch that covers everything that exists already.
func (s *Server) newFileWatch(p place, recursive bool) (*fileWatch, error) {
	info, err := os.Stat(p.name)
	if errors.Is(err, fs.ErrNotExist) {
		info, err = os.Lstat(p.name) // the target of a symlink may be created later
	}
	if err != nil {
		return nil, err
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	w := &fileWatch{
		inotify: os.NewFile(uintptr(fd), "inotify"), root: p.name, path: p.path, recursive: recursive, queue: newEventQueue(s.opts.QueuedEvents), maxDirs: s.opts.WatchedDirs,
		dirs: map[int32]string{}, seen: map[string]bool{}, leaving: map[uint32]departure{},
	}
	if !info.IsDir() {
		// Editors replace a file instead of changing it: only watching its directory reveals that.
		w.root, w.path, w.only, w.recursive = filepath.Dir(p.name), filepath.Dir(p.path), filepath.Base(p.name), false
	}
	wd, err := unix.InotifyAddWatch(fd, w.root, watchMask)
	if err != nil {
		w.close()
		return nil, &os.PathError{Op: "watch", Path: p.path, Err: err}
	}
	w.dirs[int32(wd)] = "."
	w.queue.push(agentapi.FileEvent{Type: agentapi.WatchReady})
	if w.recursive {
		w.cover(".", false)
	}
	return w, nil
}

func (w *fileWatch) close() { w.inotify.Close() }

// send writes events until the watch has ended and all were sent, or ctx ends.
func (w *fileWatch) send(ctx context.Context, to http.ResponseWriter) error {
	var buf []byte
	flush := http.NewResponseController(to)
	for {
		events, more := w.queue.take(ctx)
		for _, e := range events {
			var err error
			if buf, err = agentapi.AppendJSONFrame(buf[:0], agentapi.FrameFileEvent, e); err != nil {
				return err
			}
			if _, err := to.Write(buf); err != nil {
				return err
			}
		}
		if !more {
			return ctx.Err()
		}
		if err := flush.Flush(); err != nil {
			return err
		}
	}
}

// run reads inotify's events until the root is gone or the watch is closed.
func (w *fileWatch) run() error {
	defer w.queue.end()
	raw, err := w.inotify.SyscallConn()
	if err != nil {
		return err
	}
	buf := make([]byte, 64<<10)
	for {
		var n int
		var readErr error
		err := raw.Read(func(fd uintptr) bool {
			for n, readErr = unix.Read(int(fd), buf); readErr == unix.EINTR; {
				n, readErr = unix.Read(int(fd), buf)
			}
			if readErr != unix.EAGAIN {
				return true
			}
			return !w.idle(int(fd))
		})
		switch {
		case err != nil:
			return err
		case readErr == unix.EAGAIN:
			continue
		case readErr != nil:
			return os.NewSyscallError("read inotify", readErr)
		case w.handleAll(buf[:n]):
			return nil
		}
	}
}

// departure is a directory that was moved, and the time of the event.
type departure struct {
	name string
	at   time.Time
}

// idle is called when inotify has no more events: it drops the remembered events. It
// returns false when there are events after all.
func (w *fileWatch) idle(fd int) bool {
	clear(w.seen)
	if len(w.leaving) == 0 {
		return true
	}
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if n, _ := unix.Poll(poll, int(moveGrace.Milliseconds())); n > 0 {
		// There may never be a quiet moment, so stop waiting for directories that left long ago.
		for cookie, left := range w.leaving {
			if time.Since(left.at) >= moveGrace {
				w.forget(left.name)
				delete(w.leaving, cookie)
			}
		}
		return false
	}
	for cookie, left := range w.leaving {
		w.forget(left.name)
		delete(w.leaving, cookie)
	}
	return true
}

// handleAll handles a buffer of events and reports whether the root is gone.
func (w *fileWatch) handleAll(buf []byte) (gone bool) {
	for len(buf) >= unix.SizeofInotifyEvent {
		wd := int32(binary.NativeEndian.Uint32(buf))
		mask := binary.NativeEndian.Uint32(buf[4:])
		cookie := binary.NativeEndian.Uint32(buf[8:])
		end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(buf[12:]))
		name := strings.TrimRight(string(buf[unix.SizeofInotifyEvent:end]), "\x00")
		buf = buf[end:]
		if w.handle(wd, mask, cookie, name) {
			return true
		}
	}
	return false
}

func (w *fileWatch) handle(wd int32, mask, cookie uint32, name string) (gone bool) {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		w.recover()
		return false
	}
	dir, ok := w.dirs[wd]
	switch {
	case !ok:
		return false // its watch was removed
	case mask&unix.IN_IGNORED != 0:
		delete(w.dirs, wd)
		return dir == "."
	case mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF) != 0:
		return dir == "." && w.rootGone(mask)
	case name == "":
		if dir == "." && w.only == "" && mask&unix.IN_ATTRIB != 0 {
			w.tell(agentapi.FileAttributes, ".", true)
		}
		return false // for other directories, the watch of the parent reports it
	case w.only == "" || w.only == name:
		w.entry(filepath.Join(dir, name), mask, cookie)
	}
	return false
}

// rootGone reports that the root itself was removed or moved.
func (w *fileWatch) rootGone(mask uint32) bool {
	if w.only != "" {
		return true
	}
	if mask&unix.IN_MOVE_SELF != 0 {
		w.tell(agentapi.FileMovedFrom, ".", true)
	} else {
		w.tell(agentapi.FileRemoved, ".", true)
	}
	return true
}

// entry handles an event of a path below the root.
func (w *fileWatch) entry(name string, mask, cookie uint32) {
	isDir := mask&unix.IN_ISDIR != 0
	switch {
	case mask&unix.IN_CREATE != 0:
		if w.seen[name] {
			delete(w.seen, name)
			return
		}
		w.tell(agentapi.FileCreated, name, isDir)
	case mask&unix.IN_MOVED_TO != 0:
		delete(w.seen, name)
		delete(w.leaving, cookie)
		w.tell(agentapi.FileMovedTo, name, isDir)
	case mask&unix.IN_MOVED_FROM != 0:
		delete(w.seen, name)
		if isDir && w.recursive {
			w.leaving[cookie] = departure{name: name, at: time.Now()}
		}
		w.tell(agentapi.FileMovedFrom, name, isDir)
		return
	case mask&unix.IN_DELETE != 0:
		delete(w.seen, name)
		w.tell(agentapi.FileRemoved, name, isDir)
		return
	case mask&unix.IN_MODIFY != 0:
		w.tell(agentapi.FileModified, name, isDir)
		return
	case mask&unix.IN_ATTRIB != 0:
		w.tell(agentapi.FileAttributes, name, isDir)
		return
	default:
		return
	}
	if isDir && w.recursive {
		w.cover(name, true)
	}
}

func (w *fileWatch) tell(t agentapi.FileEventType, name string, isDir bool) {
	w.queue.push(agentapi.FileEvent{Type: t, Path: filepath.Join(w.path, name), Dir: isDir})
}

// cover watches a directory and all below it. When tell is set, it reports the content of
// directories that were not watched before as created, because that content is older than the
// watch. Directories that were watched before have a new path now.
func (w *fileWatch) cover(name string, tell bool) {
	for todo := []string{name}; len(todo) > 0; {
		name, todo = todo[len(todo)-1], todo[:len(todo)-1]
		known, err := w.add(name)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ELOOP) && !w.limited {
				w.limited = true
				w.tell(agentapi.WatchLimit, name, true)
			}
			continue
		}
		todo = w.scan(name, tell && !known, todo)
	}
}

// scan appends the directories in a directory to todo.
func (w *fileWatch) scan(name string, tell bool, todo []string) []string {
	d, err := os.Open(filepath.Join(w.root, name))
	if err != nil {
		return todo // it was removed, which is reported
	}
	defer d.Close()
	for {
		entries, err := d.ReadDir(1024)
		for _, e := range entries {
			child := filepath.Join(name, e.Name())
			if tell {
				w.tell(agentapi.FileCreated, child, e.IsDir())
				if len(w.seen) < maxSeen {
					w.seen[child] = true
				}
			}
			if e.IsDir() {
				todo = append(todo, child)
			}
		}
		if err != nil {
			return todo
		}
	}
}

var errTooManyDirs = errors.New("too many directories are watched")

// add watches a directory and reports whether it was watched already.
func (w *fileWatch) add(name string) (known bool, err error) {
	var wd int
	err = w.control(func(fd int) (err error) {
		flags := uint32(watchMask)
		if name != "." {
			flags |= unix.IN_DONT_FOLLOW
		}
		wd, err = unix.InotifyAddWatch(fd, filepath.Join(w.root, name), flags)
		return err
	})
	if err != nil {
		return false, err
	}
	if _, known = w.dirs[int32(wd)]; !known && len(w.dirs) >= w.maxDirs {
		return false, errors.Join(errTooManyDirs, w.drop(int32(wd)))
	}
	w.dirs[int32(wd)] = name
	return known, nil
}

func (w *fileWatch) drop(wd int32) error {
	delete(w.dirs, wd)
	return w.control(func(fd int) error {
		_, err := unix.InotifyRmWatch(fd, uint32(wd))
		return err
	})
}

// control calls f with the descriptor, which stays open meanwhile.
func (w *fileWatch) control(f func(fd int) error) error {
	raw, err := w.inotify.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return err
	}
	return inner
}

// forget removes the watches of a directory that left the tree, and of all below it.
func (w *fileWatch) forget(name string) {
	for wd, dir := range w.dirs {
		if dir == name || strings.HasPrefix(dir, name+"/") {
			w.drop(wd) // an error means that it is gone already
		}
	}
}

// recover covers the tree again after inotify lost events, and reports the loss.
func (w *fileWatch) recover() {
	old := w.dirs
	w.dirs = map[int32]string{}
	clear(w.leaving)
	clear(w.seen)
	if _, err := w.add("."); err == nil && w.recursive {
		w.cover(".", false)
	}
	for wd := range old {
		if _, still := w.dirs[wd]; !still {
			w.drop(wd)
		}
	}
	w.queue.push(agentapi.FileEvent{Type: agentapi.WatchOverflow})
}
