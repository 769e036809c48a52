package sshd

import "golang.org/x/sys/unix"

// signals are the signals by the names that SSH has for them (RFC 4254, 6.10).
var signals = map[string]unix.Signal{
	"ABRT": unix.SIGABRT, "ALRM": unix.SIGALRM, "FPE": unix.SIGFPE, "HUP": unix.SIGHUP, "ILL": unix.SIGILL, "INT": unix.SIGINT,
	"KILL": unix.SIGKILL, "PIPE": unix.SIGPIPE, "QUIT": unix.SIGQUIT, "SEGV": unix.SIGSEGV, "TERM": unix.SIGTERM,
	"USR1": unix.SIGUSR1, "USR2": unix.SIGUSR2,
}

// signalName returns the name of a signal; "" for 0, and for signals without a name in SSH.
func signalName(number int) string {
	for name, s := range signals {
		if int(s) == number {
			return name
		}
	}
	return ""
}
