//go:build !amd64

package agent

import "syscall"

func forkExec(program string, argv []string, attr *syscall.ProcAttr) (int, error) {
	return syscall.ForkExec(program, argv, attr)
}
