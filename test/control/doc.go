// Package control measures the control plane alone: a whole server over the fake driver, without gVisor, whose database
// has many sandboxes, directly, through a standby, and with two active servers. scripts/bench.sh -control runs it with 100,000 rows; without flags it has few, so that each run of the
// tests shows that it works.
package control
