package process

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// PSS adds up the proportional memory of processes; 0 when it may not be read. Processes that share
// their memory, such as the helpers through which gVisor runs a guest process, count once.
func PSS(pids []int) int64 {
	var total int64
	var counted []int
	for _, pid := range pids {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil || slices.ContainsFunc(counted, func(other int) bool { return sameMemory(pid, other) }) {
			continue
		}
		counted = append(counted, pid)
		for line := range bytes.Lines(data) {
			if rest, ok := bytes.CutPrefix(line, []byte("Pss:")); ok {
				kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(string(rest)), " kB"), 10, 64)
				total += kib << 10
			}
		}
	}
	return total
}

// Children returns the children of each process.
func Children() map[int][]int {
	children := map[int][]int{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		child, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		if parent, _, err := ParentAndStart(child); err == nil { // else it has ended
			children[parent] = append(children[parent], child)
		}
	}
	return children
}

// Tree returns a process and its descendants.
func Tree(children map[int][]int, pid int) []int {
	tree := []int{pid}
	for i := 0; i < len(tree); i++ {
		tree = append(tree, children[tree[i]]...)
	}
	return tree
}

// sameMemory reports whether two processes share their address space. On a kernel without kcmp,
// they count as different.
func sameMemory(a, b int) bool {
	const kcmpVM = 1 // KCMP_VM of linux/kcmp.h
	order, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(a), uintptr(b), kcmpVM, 0, 0, 0)
	return errno == 0 && order == 0
}
