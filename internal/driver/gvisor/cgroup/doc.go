// Package cgroup limits and accounts boxes with the host's control groups, of
// version 1 and 2 behind one API.
//
// A [Parent] holds the groups of one installation. A [Group] is one box: a
// directory in the unified hierarchy of version 2, or one directory in each of
// the memory, cpu, cpuacct and pids hierarchies of version 1. Everything is
// found by name, so a restarted server finds the groups of its predecessor.
//
// Processes are born in their group (see [Group.Start]); none is moved later,
// which would cost about ten milliseconds of waiting in the kernel and leave a
// moment without limits.
//
// What the host does not offer or does not let us use is missing from
// [Parent.Controllers]; the rest works without it.
package cgroup
