package archiver

import (
	"cmp"
	"errors"
	"maps"
	"time"

	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/sandbox"
)

// backlog archives the sandboxes that are paused for longer than the setting, and copies the states of the others if the setting says so, as many at a time as there may be uploads. Workspaces take
// turns. A single goroutine uses it, which waits for none of the uploads.
type backlog struct {
	s         *Service
	ended     chan upload // buffered for all uploads in progress
	uploading map[sandbox.ID]sandbox.WorkspaceID
	// lastTurn has the last turn of each workspace; turn is the last turn of all.
	lastTurn map[sandbox.WorkspaceID]int
	turn     int
	// tried are the sandboxes whose upload has begun since the last retry, and full the workspaces whose quota refused an upload since. failed
	// says that an upload failed, for which others would fail as well.
	tried  map[sandbox.ID]bool
	full   map[sandbox.WorkspaceID]bool
	failed bool
	// uncopied are the states that are to be copied.
	uncopied map[sandbox.CheckpointID]bool
	// failures has the time of the last failure of each sandbox whose upload failed: they are tried after the others, because the cause may be their own.
	failures map[sandbox.ID]time.Time
}

// upload is an upload of a backlog that has ended.
type upload struct {
	sandbox   sandbox.ID
	workspace sandbox.WorkspaceID
	err       error
}

func newBacklog(s *Service) *backlog {
	return &backlog{
		s: s, ended: make(chan upload, uploads), uploading: map[sandbox.ID]sandbox.WorkspaceID{}, lastTurn: map[sandbox.WorkspaceID]int{},
		tried: map[sandbox.ID]bool{}, uncopied: map[sandbox.CheckpointID]bool{}, full: map[sandbox.WorkspaceID]bool{}, failures: map[sandbox.ID]time.Time{},
	}
}

// look finds the states that are to be copied.
func (l *backlog) look() {
	if !l.s.cfg.Copies {
		return
	}
	list, err := l.s.deps.States.Uncopied(l.s.ctx)
	if err != nil {
		if l.s.ctx.Err() == nil {
			l.s.log.Warn("states of paused sandboxes that have no copy not found, trying again soon", "error", err)
		}
		return
	}
	clear(l.uncopied)
	for _, id := range list {
		l.uncopied[id] = true
	}
}

// due reports whether something is to be done with a paused sandbox, and whether its state is copied only.
func (l *backlog) due(sb *sandbox.Sandbox) (copies, due bool) {
	if sb.State != sandbox.Paused || !sb.ArchivedAt.IsZero() {
		return false, false
	}
	if l.s.cfg.After > 0 && time.Since(sb.PausedAt) >= l.s.cfg.After {
		return false, true
	}
	return true, l.uncopied[sb.Saved]
}

// fill starts uploads while there may be more.
func (l *backlog) fill() {
	if l.s.cfg.After <= 0 && !l.s.cfg.Copies || l.s.supported() != nil {
		return
	}
	for !l.failed && len(l.uploading) < uploads {
		b := l.next()
		if b == nil {
			clear(l.lastTurn)
			return
		}
		l.start(b)
	}
}

// next returns the sandbox that is archived next: of the workspace with the fewest uploads, and of several of the workspace that had none for the
// longest time, the sandbox that is paused for the longest time. Sandboxes whose upload failed come last. It returns nil if there is none.
func (l *backlog) next() (first *box.Box) {
	var best sandbox.Sandbox
	busy := map[sandbox.WorkspaceID]int{}
	for _, ws := range l.uploading {
		busy[ws]++
	}
	for _, b := range l.s.deps.Boxes() {
		sb := b.View().Sandbox
		if _, due := l.due(&sb); !due || l.full[sb.Workspace] || l.tried[b.ID] || b.Busy() {
			continue
		}
		if _, own := l.uploading[b.ID]; own || l.s.isUploading(b.ID) {
			continue
		}
		if first == nil || cmp.Or(
			l.failures[b.ID].Compare(l.failures[best.ID]),
			cmp.Compare(busy[sb.Workspace], busy[best.Workspace]), cmp.Compare(l.lastTurn[sb.Workspace], l.lastTurn[best.Workspace]), sb.PausedAt.Compare(best.PausedAt),
		) < 0 {
			first, best = b, sb
		}
	}
	return first
}

// start starts the upload of a sandbox.
func (l *backlog) start(b *box.Box) {
	sb := b.View().Sandbox
	copies, _ := l.due(&sb)
	why := "it is paused for " + l.s.cfg.After.String()
	u := upload{sandbox: b.ID, workspace: sb.Workspace}
	l.tried[u.sandbox] = true
	l.turn++
	l.lastTurn[u.workspace] = l.turn
	l.uploading[u.sandbox] = u.workspace
	c, err := l.s.start(b, why, copies)
	if err == nil && !l.s.deps.Work.Go(func() {
		<-c.done
		u.err = c.err
		l.ended <- u
	}) {
		err = box.ErrClosed
	}
	if err != nil {
		u.err = err
		l.end(u)
	}
}

// end notes the end of an upload.
func (l *backlog) end(u upload) {
	delete(l.uploading, u.sandbox)
	delete(l.failures, u.sandbox)
	switch code := sandbox.CodeOf(u.err); {
	case u.err == nil || code == sandbox.Conflict || code == sandbox.Ended || errors.Is(u.err, errInUse) || l.s.ctx.Err() != nil:
	case code == sandbox.QuotaExceeded:
		l.full[u.workspace] = true
	default:
		l.failed = true
		l.failures[u.sandbox] = time.Now()
		l.s.log.Warn("paused sandbox not archived, trying again soon", "sandbox", u.sandbox, "error", u.err)
	}
}

// retry lets sandboxes be tried again.
func (l *backlog) retry() {
	clear(l.tried)
	clear(l.full)
	l.failed = false
	if len(l.failures) > 0 { // forgets sandboxes that have ended
		live := map[sandbox.ID]bool{}
		for _, b := range l.s.deps.Boxes() {
			live[b.ID] = true
		}
		maps.DeleteFunc(l.failures, func(id sandbox.ID, _ time.Time) bool { return !live[id] })
	}
}
