// Package precompiled gives gVisor its seccomp filters ready made. The Go module
// of gVisor leaves them out, and building them takes a third of a box's start.
//
// It has only the filters of the configuration that package driver/gvisor uses.
// Other configurations still work: gVisor then builds its filter when it boots.
package precompiled

import (
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	"gvisor.dev/gvisor/runsc/boot/filter"
)

//go:generate go run ./generate programs_amd64.go

//go:linkname registered gvisor.dev/gvisor/runsc/boot/filter.precompiledPrograms
var registered map[string]precompiledseccomp.Program

// Register makes the filters known to gVisor. It must be called once, before
// gVisor's boot runs.
func Register() {
	filter.ListPrecompiled() // fires gVisor's own registration, which would overwrite ours later
	registered = make(map[string]precompiledseccomp.Program, len(programs))
	for _, p := range programs {
		registered[p.Name] = p
	}
}
