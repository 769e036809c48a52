package archiver

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/sandbox"
)

// backlog archives the sandboxes that are paused for longer than the setting. If the setting says so, it copies the states of the others, and checkpoints. There are as many
// uploads at a time as there may be. Workspaces take turns; of a workspace, states of paused sandboxes go first, then named checkpoints, and automatic checkpoints last, because there may be many. A single goroutine uses it,
// which waits for none of the uploads.
type backlog struct {
	s         *Service
	ended     chan upload // buffered for all uploads in progress
	uploading map[sandbox.CheckpointID]upload
	// lastTurn has the last turn of each workspace; turn is the last turn of all.
	lastTurn map[sandbox.WorkspaceID]int
	turn     int
	// tried are the states whose upload has begun since the last retry, and full the workspaces whose quota refused an upload since. failed
	// says that an upload failed, for which others would fail as well.
	tried  map[sandbox.CheckpointID]bool
	full   map[share]bool
	failed bool
	// uncopied are the states of paused sandboxes, and checkpoints the checkpoints, that are to be copied.
	uncopied    map[sandbox.CheckpointID]bool
	checkpoints []sandbox.Checkpoint
	// failures has the time of the last failure of each state whose upload failed: they are tried after the others, because the cause may be their own.
	failures map[sandbox.CheckpointID]time.Time
}

// share is the quota of a workspace, or the part of it that automatic checkpoints may use.
type share struct {
	workspace sandbox.WorkspaceID
	automatic bool
}

// upload is an upload of a backlog.
type upload struct {
	share
	sandbox sandbox.ID
	id      sandbox.CheckpointID
	err     error // of an upload that has ended
}

// due is a state that is to be sent.
type due struct {
	upload
	box        *box.Box
	checkpoint *sandbox.Checkpoint // nil for the state of a paused sandbox
	copies     bool
	since      time.Time
}

// rank is the place of a state among the states of its workspace.
func (d *due) rank() int {
	switch {
	case d.checkpoint == nil:
		return 0
	case !d.automatic:
		return 1
	}
	return 2
}

func newBacklog(s *Service) *backlog {
	return &backlog{
		s: s, ended: make(chan upload, uploads), uploading: map[sandbox.CheckpointID]upload{}, lastTurn: map[sandbox.WorkspaceID]int{},
		tried: map[sandbox.CheckpointID]bool{}, uncopied: map[sandbox.CheckpointID]bool{}, full: map[share]bool{}, failures: map[sandbox.CheckpointID]time.Time{},
	}
}

// look finds the states that are to be copied.
func (l *backlog) look() {
	if !l.s.cfg.Copies {
		return
	}
	list, err := l.s.deps.States.Uncopied(l.s.ctx)
	checkpoints, cerr := l.s.deps.Checkpoints.UncopiedCheckpoints(l.s.ctx)
	if err := errors.Join(err, cerr); err != nil {
		if l.s.ctx.Err() == nil {
			l.s.log.Warn("states and checkpoints that have no copy not found, trying again soon", "error", err)
		}
		return
	}
	clear(l.uncopied)
	for _, id := range list {
		l.uncopied[id] = true
	}
	l.checkpoints = checkpoints
}

// paused returns what is to be sent of a sandbox that may be paused; false for nothing.
func (l *backlog) paused(b *box.Box, sb *sandbox.Sandbox) (due, bool) {
	d := due{upload: upload{share: share{workspace: sb.Workspace}, sandbox: b.ID, id: sb.Saved}, box: b, since: sb.PausedAt}
	if sb.State != sandbox.Paused || !sb.ArchivedAt.IsZero() || b.Busy() || l.s.isUploading(b.ID) {
		return d, false
	}
	if l.s.cfg.After > 0 && time.Since(sb.PausedAt) >= l.s.cfg.After {
		return d, true
	}
	d.copies = true
	return d, l.uncopied[sb.Saved]
}

// fill starts uploads while there may be more.
func (l *backlog) fill() {
	if l.s.cfg.After <= 0 && !l.s.cfg.Copies || l.s.supported() != nil {
		return
	}
	for !l.failed && len(l.uploading) < uploads {
		d := l.next()
		if d == nil {
			clear(l.lastTurn)
			return
		}
		l.start(d)
	}
}

// next returns the state that is sent next: of the workspace with the fewest uploads, and of several of the workspace that had none for the
// longest time, the first of the highest rank. States whose upload failed come last. It returns nil if there is none.
func (l *backlog) next() *due {
	var first *due
	busy := map[sandbox.WorkspaceID]int{}
	sending := map[sandbox.ID]bool{} // an automatic checkpoint
	for _, u := range l.uploading {
		busy[u.workspace]++
		sending[u.sandbox] = sending[u.sandbox] || u.automatic
	}
	consider := func(d due) {
		_, own := l.uploading[d.id]
		if own || l.tried[d.id] || l.full[share{d.workspace, false}] || l.full[d.share] || d.automatic && sending[d.sandbox] {
			return
		}
		if first == nil || cmp.Or(
			l.failures[d.id].Compare(l.failures[first.id]),
			cmp.Compare(busy[d.workspace], busy[first.workspace]), cmp.Compare(l.lastTurn[d.workspace], l.lastTurn[first.workspace]),
			cmp.Compare(d.rank(), first.rank()), d.since.Compare(first.since),
		) < 0 {
			first = &d
		}
	}
	boxes := map[sandbox.ID]*box.Box{}
	for _, b := range l.s.deps.Boxes() {
		boxes[b.ID] = b
		sb := b.View().Sandbox
		if d, is := l.paused(b, &sb); is {
			consider(d)
		}
	}
	for _, cp := range l.checkpoints { // a copy, which the upload uses
		if b := boxes[cp.Sandbox]; b != nil {
			u := upload{share: share{b.View().Sandbox.Workspace, cp.Automatic()}, sandbox: b.ID, id: cp.ID}
			consider(due{upload: u, box: b, checkpoint: &cp, since: cp.CreatedAt})
		}
	}
	return first
}

// start starts an upload.
func (l *backlog) start(d *due) {
	u := d.upload
	l.tried[u.id] = true
	l.turn++
	l.lastTurn[u.workspace] = l.turn
	l.uploading[u.id] = u
	if !l.s.deps.Work.Go(func() {
		u.err = l.send(d)
		l.ended <- u
	}) {
		u.err = box.ErrClosed
		l.end(u)
	}
}

// send sends a state.
func (l *backlog) send(d *due) error {
	if d.checkpoint != nil {
		return l.s.copyCheckpoint(d.box, d.checkpoint)
	}
	c, err := l.s.start(d.box, "it is paused for "+l.s.cfg.After.String(), d.copies)
	if err != nil {
		return err
	}
	<-c.done
	return c.err
}

// end notes the end of an upload.
func (l *backlog) end(u upload) {
	delete(l.uploading, u.id)
	delete(l.failures, u.id)
	switch code := sandbox.CodeOf(u.err); {
	case u.err == nil: // the next look is later
		delete(l.uncopied, u.id)
		l.checkpoints = slices.DeleteFunc(l.checkpoints, func(cp sandbox.Checkpoint) bool { return cp.ID == u.id })
	case code == sandbox.Conflict || code == sandbox.Ended || errors.Is(u.err, errInUse) || l.s.ctx.Err() != nil:
	case code == sandbox.QuotaExceeded:
		l.full[u.share] = true
	default:
		l.failed = true
		l.failures[u.id] = time.Now()
		l.s.log.Warn("state not sent to the object store, trying again soon", "sandbox", u.sandbox, "checkpoint", u.id, "error", u.err)
	}
}

// retry lets states be tried again.
func (l *backlog) retry() {
	clear(l.tried)
	clear(l.full)
	l.failed = false
	if len(l.failures) > 0 { // forgets what is needed no more
		live := map[sandbox.CheckpointID]bool{}
		for _, b := range l.s.deps.Boxes() {
			live[b.View().Sandbox.Saved] = true
		}
		for i := range l.checkpoints {
			live[l.checkpoints[i].ID] = true
		}
		maps.DeleteFunc(l.failures, func(id sandbox.CheckpointID, _ time.Time) bool { return !live[id] })
	}
}
