package gvisor_test

import (
	"debug/elf"
	"testing"

	"github.com/modbox/modbox/internal/driver/gvisor/gvisortest"
)

const hugePage = 2 << 20 // bytes

// TestAgentSharesWhatItDoesNotChange: the first change of a page of a file in private memory has gvisor copy the aligned 2 MiB
// around it, with read-only pages of the same file that are adjacent. The agent's data begins at such a boundary, or each sandbox
// would have 1.8 MB more of memory and in its checkpoints.
func TestAgentSharesWhatItDoesNotChange(t *testing.T) {
	gvisortest.Need(t)
	f, err := elf.Open(built.agent)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	writable := 0
	for _, p := range f.Progs {
		if p.Type != elf.PT_LOAD || p.Flags&elf.PF_W == 0 {
			continue
		}
		writable++
		if p.Vaddr%hugePage != 0 {
			t.Errorf("the agent's data begins at %#x, want a multiple of %#x", p.Vaddr, hugePage)
		}
	}
	if writable != 1 {
		t.Errorf("the agent has %d writable segments, want 1", writable)
	}
}
