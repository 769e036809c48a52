package proctree

import (
	"os"
	"time"
)

const (
	// slowLook and fastLook are the longest and shortest time between two looks.
	slowLook, fastLook = 25 * time.Millisecond, 5 * time.Millisecond
	// growth estimates the fastest growth of the memory of a family, in bytes per second, for the time of the next look.
	growth = 4 << 30
	// tick is the unit of processor time in /proc.
	tick = time.Second / 100
)

// Limits are limits of a family. A limit of 0 is none.
type Limits struct {
	// MemoryBytes bounds the sum of the resident memory of the processes.
	MemoryBytes int64
	// CPU bounds the sum of their processor time.
	CPU time.Duration
	// FileSizeBytes bounds the size of each file that a process writes. The kernel must stop writers at one byte more.
	FileSizeBytes int64
	// Processes bounds how many there are at a time.
	Processes int
}

// Limit names one of the [Limits].
type Limit string

// The limits.
const (
	Memory    Limit = "memory"
	CPU       Limit = "cpu"
	FileSize  Limit = "file_size"
	Processes Limit = "processes"
)

// Watch looks at the family of a process, again and again, and finds the limit that it exceeds. One goroutine at a
// time uses it.
type Watch struct {
	limits Limits
	files  *Files

	root    int
	started uint64         // of the root; 0 before the first look
	known   Family         // the processes that the last look found
	cpu     map[int]uint64 // their processor time, in ticks
	ended   uint64         // processor time of processes that have ended, in ticks, as far as it was seen
	base    time.Duration  // processor time that does not count
}

// NewWatch returns a watch of the family of root, with files for the limit of files.
func NewWatch(root int, limits Limits, files *Files) *Watch {
	return &Watch{limits: limits, files: files, root: root}
}

// Begin looks for the first time at a family that has run before: processor time that it has used, and files that are
// too large already, do not count.
func (w *Watch) Begin(all map[int]Process) {
	members, ok := w.members(all)
	if !ok {
		return
	}
	w.base = w.used(all)
	if w.limits.FileSizeBytes > 0 {
		w.files.pass(members)
	}
}

// members returns the family as it is now. ok is false if the root does not run any more.
func (w *Watch) members(all map[int]Process) (members Family, ok bool) {
	root, ok := all[w.root]
	if !ok || w.started != 0 && w.started != root.Started {
		return nil, false
	}
	w.started = root.Started
	members = make(Family)
	members.grow(all, w.root, w.known)
	w.known = members
	return members, true
}

// Look returns the limit that the family exceeds, "" for none, its processes, and the time until the next look.
func (w *Watch) Look(all map[int]Process) (exceeded Limit, members Family, next time.Duration) {
	members, ok := w.members(all)
	if !ok {
		return "", nil, slowLook
	}
	memory := uint64(0)
	for pid := range members {
		memory += all[pid].resident
	}
	memory *= uint64(os.Getpagesize())
	limits := &w.limits
	switch {
	case limits.Processes > 0 && len(members) > limits.Processes:
		return Processes, members, slowLook
	case limits.MemoryBytes > 0 && memory > uint64(limits.MemoryBytes):
		return Memory, members, slowLook
	case limits.CPU > 0 && w.used(all)-w.base >= limits.CPU:
		return CPU, members, slowLook
	case limits.FileSizeBytes > 0 && w.files.large(members):
		return FileSize, members, slowLook
	}
	next = slowLook
	if limits.FileSizeBytes > 0 {
		next = fastLook
	}
	if limits.MemoryBytes > 0 {
		left := time.Duration(float64(uint64(limits.MemoryBytes)-memory) / growth * float64(time.Second))
		next = min(next, max(left, fastLook))
	}
	return "", members, next
}

// used returns the processor time of the family. Processes that ended between two looks count if their parent has
// waited for them.
func (w *Watch) used(all map[int]Process) time.Duration {
	now := make(map[int]uint64, len(w.known))
	var own, waited uint64
	for pid := range w.known {
		now[pid] = all[pid].cpu
		own += all[pid].cpu
		waited += all[pid].cpu + all[pid].childCPU
	}
	for pid, was := range w.cpu {
		if is, ok := now[pid]; !ok || is < was {
			w.ended += was
		}
	}
	w.cpu = now
	return time.Duration(max(own+w.ended, waited)) * tick
}
