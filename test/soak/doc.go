// Package soak puts a mixed load on the real server, with real gVisor, and checks that what the server
// holds does not grow with the number of operations: processes, control groups, mounts, files, open
// descriptors, goroutines, memory, and disk without the database, whose records stay for some time.
//
// A soak is short unless MODBOX_TEST_SOAK_MINUTES sets its length, as `make soak MINUTES=120` does.
package soak
