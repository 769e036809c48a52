#include "textflag.h"

// func codeStart() *[codeSize]byte
TEXT ·codeStart(SB), NOSPLIT, $0-8
	LEAQ ·umount(SB), AX
	MOVQ AX, ret+0(FP)
	RET

// umount is a whole program, which runs in a process without Go. It waits for a byte from descriptor 3, like
// gVisor's command, detaches /proc, and exits with 0 if both succeeded. It has no data and needs no fixed address.
TEXT ·umount(SB), NOSPLIT|NOFRAME, $0-0
	SUBQ $16, SP
	XORL AX, AX // read
	MOVL $3, DI
	MOVQ SP, SI
	MOVL $1, DX
	SYSCALL
	CMPQ AX, $1
	JNE  failed
	MOVQ $0x636f72702f, BX // "/proc" and a zero
	MOVQ BX, (SP)
	MOVL $166, AX // umount2
	MOVQ SP, DI
	MOVL $2, SI // MNT_DETACH
	SYSCALL
	XORL DI, DI
	TESTQ AX, AX
	JEQ  exit

failed:
	MOVL $1, DI

exit:
	MOVL $231, AX // exit_group
	SYSCALL
