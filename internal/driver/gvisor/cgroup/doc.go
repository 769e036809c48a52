// Package cgroup limits and accounts boxes with the host's control groups, of version 1 and 2
// behind one API.
//
// A [Parent] contains the groups of an installation. A [Group] is a box: a directory in the unified
// hierarchy of version 2, or a directory in each of the memory, cpu, cpuacct and pids hierarchies
// of version 1. Everything is found by name, so a restarted server finds the groups of its
// predecessor.
//
// Processes are created in their group (see [Group.Start]). They are never moved into it, which
// would cost about ten milliseconds of waiting in the kernel and leave a moment without limits.
//
// Controllers that the host does not offer, or that may not be used, are missing from
// [Parent.Controllers]; the rest works without them.
package cgroup
