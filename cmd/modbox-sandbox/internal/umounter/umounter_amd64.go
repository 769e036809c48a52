package umounter

import "debug/elf"

const machine = uint16(elf.EM_X86_64)

// codeStart returns the program's code.
func codeStart() *[codeSize]byte

var start = codeStart
