package agent

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// killPasses bounds how often killTree looks again for processes that were
// started while it was looking.
const killPasses = 16

// killTree kills a process, its group, its session and all its living
// descendants. The caller makes sure that pid is not reused meanwhile.
func killTree(pid int) {
	unix.Kill(-pid, unix.SIGKILL)
	unix.Kill(pid, unix.SIGKILL)
	seen := map[int]bool{pid: true}
	for range killPasses {
		found := false
		for _, p := range descendants(pid, seen) {
			if !seen[p] {
				seen[p], found = true, true
				unix.Kill(p, unix.SIGKILL)
			}
		}
		if !found {
			return
		}
	}
}

// descendants returns the processes of the session root leads, and those whose
// chain of living parents goes through root or one of also.
func descendants(root int, also map[int]bool) []int {
	all := processes()
	belongs := make(map[int]bool, len(also))
	for pid := range also {
		belongs[pid] = true
	}
	for changed := true; changed; {
		changed = false
		for pid, p := range all {
			if !belongs[pid] && (p.session == root || p.group == root || belongs[p.parent]) {
				belongs[pid], changed = true, true
			}
		}
	}
	var list []int
	for pid := range belongs {
		if _, ok := all[pid]; ok {
			list = append(list, pid)
		}
	}
	return list
}

// relation is where a process stands among others.
type relation struct {
	parent, group, session int
}

// processes reads all processes there are; what cannot be read is left out.
func processes() map[int]relation {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	all := make(map[int]relation, len(names))
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

// parseStat reads a line of /proc/pid/stat. The command's name, in parentheses,
// may hold anything, so reading starts behind the last parenthesis.
func parseStat(line []byte) (relation, bool) {
	i := bytes.LastIndexByte(line, ')')
	if i < 0 {
		return relation{}, false
	}
	fields := bytes.Fields(line[i+1:])
	if len(fields) < 4 {
		return relation{}, false
	}
	var n [3]int
	for k := range n {
		v, err := strconv.Atoi(string(fields[k+1]))
		if err != nil {
			return relation{}, false
		}
		n[k] = v
	}
	return relation{parent: n[0], group: n[1], session: n[2]}, true
}
