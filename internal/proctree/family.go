// Package proctree finds the processes that belong together, inside a sandbox, by what /proc says: the family of a
// process, what it uses, and whether it exceeds limits.
package proctree

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// familyPasses bounds how often FamilyOf scans again for processes that were started during the
// scan.
const familyPasses = 16

// Family is a set of processes: pids, each with its start time, which distinguishes the process
// from a later process with the same pid.
type Family map[int]uint64

// Kill kills a process, its group, its session, all its living descendants, and the processes
// of known that are still alive. The caller makes sure that pid is not reused meanwhile.
func Kill(pid int, known Family) {
	unix.Kill(-pid, unix.SIGSTOP) // so that fewer processes are started during the scan
	for member := range FamilyOf(pid, known) {
		unix.Kill(member, unix.SIGKILL)
	}
	unix.Kill(-pid, unix.SIGKILL)
	unix.Kill(pid, unix.SIGKILL)
}

// FamilyOf returns the processes of the session and group led by root, and the processes with a
// living ancestor in that set or in known.
func FamilyOf(root int, known Family) Family {
	found := make(Family)
	for range familyPasses {
		if !found.grow(All(), root, known) {
			break
		}
	}
	return found
}

// grow adds the processes of all that are of the family of root, see FamilyOf, and reports whether
// it added any.
func (f Family) grow(all map[int]Process, root int, known Family) (grown bool) {
	for changed := true; changed; {
		changed = false
		for pid, p := range all {
			_, parent := f[p.parent]
			was, old := known[pid]
			if _, have := f[pid]; have {
				continue
			}
			if pid == root || p.session == root || p.group == root || parent || old && was == p.Started {
				f[pid], changed, grown = p.Started, true, true
			}
		}
	}
	return grown
}

// Process has the ids of a process that relate it to others, and what it uses.
type Process struct {
	// Started distinguishes the process from a later process with the same pid, in ticks since the system started.
	Started uint64

	parent, group, session int
	cpu, childCPU          uint64 // in ticks: its own, and of the children that it has waited for
	resident               uint64 // in pages
}

// All reads all processes; it skips entries that cannot be read.
func All() map[int]Process {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	all := make(map[int]Process, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue
		}
		if r, ok := parseStat(stat); ok {
			all[pid] = r
		}
	}
	return all
}

// parseStat parses a line of /proc/pid/stat. The command's name, in parentheses, may contain
// anything, so parsing starts after the last parenthesis.
func parseStat(line []byte) (Process, bool) {
	i := bytes.LastIndexByte(line, ')')
	if i < 0 {
		return Process{}, false
	}
	fields := bytes.Fields(line[i+1:])
	var values [9]uint64
	for j, field := range [...]int{1, 2, 3, 11, 12, 13, 14, 19, 21} { // counted from the state
		if field >= len(fields) {
			return Process{}, false
		}
		n, err := strconv.ParseUint(string(fields[field]), 10, 64)
		if err != nil {
			return Process{}, false
		}
		values[j] = n
	}
	user, system, childUser, childSystem := values[3], values[4], values[5], values[6]
	return Process{
		parent: int(values[0]), group: int(values[1]), session: int(values[2]),
		cpu: user + system, childCPU: childUser + childSystem, Started: values[7], resident: values[8],
	}, true
}
