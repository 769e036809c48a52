package cgroup

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Host describes where the control groups of this host are.
type Host struct {
	// V2 is the mount point of the unified hierarchy when there is no other; "" on a host of
	// version 1 or hybrid.
	V2 string
	// V1 maps the controllers of version 1 to their mount points; empty on a host of version 2.
	V1 map[string]string
	// Own maps the controllers of version 1, and "" for version 2, to the group of this process, as
	// a path below the mount point.
	Own map[string]string
}

// controllersV1 are the hierarchies of version 1 in which groups are made.
var controllersV1 = []string{"memory", "cpu", "cpuacct", "pids"}

// Detect finds this host's control groups in /proc.
func Detect() (Host, error) {
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return Host{}, fmt.Errorf("detect control groups: %w", err)
	}
	defer mounts.Close()
	own, err := os.Open("/proc/self/cgroup")
	if err != nil {
		return Host{}, fmt.Errorf("detect control groups: %w", err)
	}
	defer own.Close()
	return ParseHost(mounts, own)
}

// ParseHost reads the formats of /proc/self/mountinfo and /proc/self/cgroup. A
// hybrid host, with a unified hierarchy beside hierarchies of version 1, counts as
// version 1, because that is where its controllers are.
func ParseHost(mountinfo, own io.Reader) (Host, error) {
	h := Host{V1: map[string]string{}, Own: map[string]string{}}
	roots := map[string]string{}
	unified := ""
	lines := bufio.NewScanner(mountinfo)
	for lines.Scan() {
		m, ok := parseMount(lines.Text())
		switch {
		case ok && m.kind == "cgroup2" && unified == "":
			unified, roots[""] = m.point, m.root
		case ok && m.kind == "cgroup":
			for _, c := range controllersV1 {
				if _, seen := h.V1[c]; !seen && slices.Contains(m.options, c) {
					h.V1[c], roots[c] = m.point, m.root
				}
			}
		}
	}
	if err := lines.Err(); err != nil {
		return Host{}, fmt.Errorf("read mounts: %w", err)
	}
	if len(h.V1) == 0 {
		h.V2 = unified
	}
	lines = bufio.NewScanner(own)
	for lines.Scan() {
		_, rest, _ := strings.Cut(lines.Text(), ":")
		controllers, path, ok := strings.Cut(rest, ":")
		if !ok {
			continue
		}
		for c := range strings.SplitSeq(controllers, ",") {
			// The mount may show only a part of the hierarchy, as in a container.
			h.Own[c] = strings.TrimPrefix(path, strings.TrimSuffix(roots[c], "/"))
		}
	}
	if err := lines.Err(); err != nil {
		return Host{}, fmt.Errorf("read own groups: %w", err)
	}
	return h, nil
}

type mount struct {
	root, point, kind string
	options           []string
}

// parseMount reads one line of mountinfo:
//
//	33 32 0:28 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
func parseMount(line string) (mount, bool) {
	left, right, ok := strings.Cut(line, " - ")
	l, r := strings.Fields(left), strings.Fields(right)
	if !ok || len(l) < 5 || len(r) < 3 {
		return mount{}, false
	}
	return mount{root: l[3], point: filepath.Clean(l[4]), kind: r[0], options: strings.Split(r[2], ",")}, true
}
