#include "textflag.h"

// func vfork(number uintptr, clone *cloneArgs, steps *step, last *step, failure *uintptr) (pid, errno uintptr)
//
// The child shares the memory and the stack with the parent, which stands still meanwhile. So the child writes nothing but
// failure, and never returns.
TEXT ·vfork(SB), NOSPLIT|NOFRAME, $0-56
	MOVQ number+0(FP), AX
	MOVQ clone+8(FP), DI
	MOVQ $64, SI // the size of cloneArgs
	SYSCALL
	CMPQ AX, $0xfffffffffffff001
	JCC  refused
	TESTQ AX, AX
	JEQ  child
	MOVQ AX, pid+40(FP)
	MOVQ $0, errno+48(FP)
	RET

refused:
	NEGQ AX
	MOVQ $0, pid+40(FP)
	MOVQ AX, errno+48(FP)
	RET

child:
	MOVQ steps+16(FP), R12
	MOVQ last+24(FP), R13

next:
	MOVQ 0(R12), AX
	MOVQ 8(R12), DI
	MOVQ 16(R12), SI
	MOVQ 24(R12), DX
	XORL R10, R10
	XORL R8, R8
	XORL R9, R9
	SYSCALL
	CMPQ AX, $0xfffffffffffff001
	JCC  failed
	CMPQ R12, R13
	JEQ  failed // the program was not executed, for a reason that the system does not tell
	ADDQ $32, R12
	JMP  next

failed:
	NEGQ AX
	MOVQ failure+32(FP), BX
	MOVQ AX, (BX)
	MOVL $127, DI
	MOVL $231, AX // exit_group
	SYSCALL
	INT  $3
