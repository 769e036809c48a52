package fleet

import (
	"context"
	"maps"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/driver/remote"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/worker"
)

// reportPause is the time between two looks at the records of the workers of other servers. It is also how old the use of a worker may be in its record.
var reportPause = 10 * time.Second // tests change it

// foreign has the workers of the other servers, if several are active at the same time. Each server has the workers of its ranges.
type foreign struct {
	own     sandbox.Ranges   // of this server
	servers []sandbox.Ranges // of all servers
	to      *board

	seeing sync.Mutex
	list   []Worker // guarded by seeing; as their servers have recorded them
}

func (f *foreign) begin(b *board, cfg Config) {
	f.to, f.own, f.servers = b, cfg.Own, cfg.Parts
	if f.own == 0 {
		f.own = sandbox.AllRanges
	}
}

// several reports whether other servers also have workers.
func (f *foreign) several() bool { return f.own != sandbox.AllRanges }

// AllWorkers returns the workers of all servers that were not removed, the first that joined first. The use of the workers of other servers is
// some seconds old.
func (f *foreign) AllWorkers() []Worker {
	list := f.to.Workers()
	f.seeing.Lock()
	list = append(list, f.list...)
	f.seeing.Unlock()
	if f.several() {
		slices.SortStableFunc(list, func(a, b Worker) int { return a.JoinedAt.Compare(b.JoinedAt) })
	}
	return list
}

// RangesOf returns the digits of the ranges of the server of a worker; "" if there is a single server.
func (f *foreign) RangesOf(w Worker) string {
	i := slices.IndexFunc(f.servers, func(part sandbox.Ranges) bool { return part.HasRange(w.Home) })
	if i < 0 || !f.several() {
		return ""
	}
	return f.servers[i].Digits()
}

// Elsewhere returns an error for a worker that another server has. Errors: [worker.ErrElsewhere].
func (f *foreign) Elsewhere(id string) error {
	if _, err := f.to.Worker(id); err == nil || !f.several() {
		return nil
	}
	return worker.ErrElsewhere
}

// Find returns a worker of this server that was not removed, by its name or id. Errors: NotFound; Unavailable, with [sandbox.Elsewhere], for a worker of another
// server.
func (f *foreign) Find(ref string) (Worker, error) {
	w, err := f.to.Worker(ref)
	if err != nil {
		err = f.missing(ref)
	}
	return w, err
}

// missing returns the error for a worker that this server does not have. Errors: of Find.
func (f *foreign) missing(ref string) error {
	f.seeing.Lock()
	defer f.seeing.Unlock()
	i := slices.IndexFunc(f.list, func(w Worker) bool { return w.Name == ref || w.ID == ref })
	if i < 0 {
		return noWorker(ref)
	}
	return sandbox.Wrap(sandbox.Unavailable, sandbox.Elsewhere{Range: f.list[i].Home}, "another server has the worker %q; try again", ref)
}

// see keeps what records say about the workers of other servers.
func (f *foreign) see(records []worker.Record) {
	var list []Worker
	taken := map[string]bool{}
	for _, r := range records {
		if f.own.HasRange(r.Home) {
			continue
		}
		taken[r.Name], taken[r.ID] = true, true
		if r.Status == worker.Gone {
			continue
		}
		list = append(list, Worker{
			Record: r, Connected: !r.Use.ConnectedAt.IsZero(), ConnectedAt: r.Use.ConnectedAt, Boxes: r.Use.Boxes,
			PromisedBytes: r.Use.PromisedBytes, PromisedMaxBytes: f.to.limit(&member{record: r}),
		})
	}
	f.seeing.Lock()
	f.list = list
	f.seeing.Unlock()
	f.to.mu.Lock()
	f.to.taken = taken
	f.to.mu.Unlock()
}

// homeAmong returns the range that a new worker belongs to, among the workers of records: the range of this server with the fewest workers. ok is false if
// another server has fewer workers. Workers that are connected, or have not connected yet, count more than all workers together.
func (f *foreign) homeAmong(records []worker.Record) (home int, ok bool) {
	var connected, all [sandbox.RangeCount]int
	for _, r := range records {
		if worker.Supplied(r.ID) || r.Status == worker.Gone || r.Status == worker.Lost {
			continue
		}
		all[r.Home]++
		if !r.Use.ConnectedAt.IsZero() || r.MemoryBytes == 0 {
			connected[r.Home]++
		}
	}
	count := func(part sandbox.Ranges) (n [2]int) {
		for i := range sandbox.RangeCount {
			if part.HasRange(i) {
				n[0] += connected[i]
				n[1] += all[i]
			}
		}
		return n
	}
	mine := count(f.own)
	for _, part := range f.servers {
		if n := count(part); f.several() && slices.Compare(n[:], mine[:]) < 0 {
			return 0, false
		}
	}
	home = -1
	for i := range sandbox.RangeCount {
		// 0, 8, 4, 12, 2 and so on, so that two, four or more servers would have as many workers each.
		if n := int(bits.Reverse8(uint8(i)) >> 4); f.own.HasRange(n) && (home < 0 || all[n] < all[home]) {
			home = n
		}
	}
	return home, true
}

// use returns the use of a worker for other servers.
//
// Preconditions: the mu of the board is held.
func (m *member) use() (u worker.Use) {
	if m.connected {
		u.ConnectedAt = m.record.SeenAt
	}
	u.Boxes, u.PromisedBytes = m.placed, m.promised
	return u
}

// homeOf returns the range that a worker belongs to that joins.
//
// Preconditions: d.mu is held.
func (d homes) homeOf(id string) int {
	if e := d.expected[id]; e != nil {
		return e.home
	}
	var records []worker.Record
	for _, m := range d.members {
		records = append(records, m.record)
	}
	home, _ := d.homeAmong(records)
	return home
}

// homes is a driver as the keeper of the records of its workers, which other servers read.
type homes struct{ *Driver }

// admit records a worker that connects for the first time, and returns it; nil for a supplied worker that is expected. It does so before the worker learns
// of this server: the worker would refuse a server that began before this server. Errors: [worker.ErrElsewhere] if the worker is or must become a worker of another
// server; Unavailable.
func (d homes) admit(ctx context.Context, w worker.Identity) (*member, error) {
	d.mu.Lock()
	unexpected := d.errUnexpected(w.ID)
	d.mu.Unlock()
	if unexpected != nil {
		return nil, worker.ErrElsewhere // or its sandbox has ended
	}
	if worker.Supplied(w.ID) {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	d.joining.Lock()
	defer d.joining.Unlock()
	records, err := d.cfg.Rows.List(ctx)
	if err != nil {
		return nil, err
	}
	d.see(records)
	i := slices.IndexFunc(records, func(r worker.Record) bool { return r.ID == w.ID })
	if i >= 0 && !d.own.HasRange(records[i].Home) {
		return nil, worker.ErrElsewhere
	}
	d.mu.Lock()
	err = d.mayBegin(w)
	d.mu.Unlock()
	if err != nil {
		return nil, err
	}
	m := &member{awaited: true}
	if i >= 0 { // this server has recorded it, and does not know
		m.record = records[i]
	} else if m.record, err = d.add(ctx, w, records); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errClosed
	}
	m.boxes = remote.New(d.cfg.Remote)
	d.enlist(m)
	return m, nil
}

// add makes the record of a worker that connects for the first time, beside the records that there are. Errors: of admit.
func (d homes) add(ctx context.Context, w worker.Identity, records []worker.Record) (worker.Record, error) {
	home, ok := d.homeAmong(records)
	if !ok {
		return worker.Record{}, worker.ErrElsewhere
	}
	now := time.Now().UTC()
	r := worker.Record{Identity: w, Name: w.ID, Status: worker.Ready, Home: home, JoinedAt: now, SeenAt: now}
	joined := 0
	for _, other := range records {
		if !worker.Supplied(other.ID) {
			joined++
		}
	}
	added, err := d.cfg.Rows.Add(ctx, r, joined)
	if err == nil && !added {
		err = sandbox.Errorf(sandbox.Unavailable, "another worker has joined at this moment; the worker tries again")
	}
	return r, err
}

// returning returns a lost worker that is back, as it joins again: it stays a worker of this server, which may have recorded sandboxes on it. It returns nil
// for a single server.
func (d homes) returning(m *member) *member {
	if !d.several() {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	again := &member{boxes: remote.New(d.cfg.Remote), record: m.record, awaited: true}
	again.record.Status = worker.Ready
	return again
}

// watch records the use of the workers, and reads the records of the workers of other servers, until the driver is closed.
func (d homes) watch() {
	tick := time.NewTicker(reportPause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-d.life.Done():
			return
		}
		d.report()
		if err := d.refresh(); err != nil && d.life.Err() == nil {
			d.log.Error("the workers of other servers are shown as they were", "error", err)
		}
	}
}

// report records the workers whose use has changed.
func (d homes) report() {
	var changed []*member
	d.mu.Lock()
	for _, m := range d.members {
		if !m.gone() && m.record.Use != m.use() {
			changed = append(changed, m)
		}
	}
	d.mu.Unlock()
	for _, m := range changed {
		d.save(m)
	}
}

// refresh reads the records of workers. A worker of this server whose name another server has recorded for another worker gets another name.
func (d homes) refresh() error {
	ctx, cancel := context.WithTimeout(d.life, saveTimeout)
	defer cancel()
	records, err := d.cfg.Rows.List(ctx)
	if err != nil {
		return err
	}
	d.see(records)
	names := map[string]string{}
	for _, r := range records {
		names[r.ID] = r.Name
	}
	var renamed []*member
	d.mu.Lock()
	for _, m := range d.members {
		if r := &m.record; !m.gone() && names[r.ID] != r.Name && d.taken[r.Name] {
			r.Name = d.freeName(r.Name, r.ID)
			renamed = append(renamed, m)
		}
	}
	d.mu.Unlock()
	for _, m := range renamed {
		d.save(m)
	}
	return nil
}

// Misplaced returns an error if a box is on a worker of another server than the sandbox, when several servers are active at the same time: neither server could
// use the box, and one would destroy it. Errors: Conflict, with what to do.
func Misplaced(parts []sandbox.Ranges, workers []worker.Record, live []sandbox.Sandbox) error {
	homes := map[string]int{}
	for _, r := range workers {
		if r.Status == worker.Ready || r.Status == worker.Draining {
			homes[r.ID] = r.Home
		}
	}
	found := map[string]sandbox.ID{}
	n := 0
	for i := range live {
		if len(live[i].Handle) == 0 {
			continue
		}
		id := parseHandle(live[i].Handle).worker
		home, known := homes[id]
		if !known && id != "" {
			continue
		}
		for _, part := range parts {
			if id == "" && part != sandbox.AllRanges || part.Has(live[i].ID) && !part.HasRange(home) {
				found[id] = live[i].ID
				n++
				break
			}
		}
	}
	if n == 0 {
		return nil
	}
	first := slices.Sorted(maps.Keys(found))[0]
	return sandbox.Errorf(sandbox.Conflict, "%d sandboxes run on workers of another server than they would belong to with replica.active %d, such as %s on %s: start the servers with the former replica.active, or with 1, pause or end these sandboxes, and change the setting then",
		n, len(parts), found[first], first)
}
