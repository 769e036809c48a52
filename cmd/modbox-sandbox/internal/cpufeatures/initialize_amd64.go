package cpufeatures

import (
	"sync"
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/cpuid"
)

//go:linkname once gvisor.dev/gvisor/pkg/cpuid.initOnce
var once sync.Once

//go:linkname host gvisor.dev/gvisor/pkg/cpuid.hostFeatureSet
var host cpuid.FeatureSet

//go:linkname readMaxCPUFreq gvisor.dev/gvisor/pkg/cpuid.readMaxCPUFreq
func readMaxCPUFreq()

//go:linkname initHWCap gvisor.dev/gvisor/pkg/cpuid.initHWCap
func initHWCap()

// Initialize does what cpuid.Initialize does. It must be called before gVisor's boot runs.
func Initialize() {
	once.Do(func() {
		host = features(&cpuid.Native{})
		readMaxCPUFreq()
		initHWCap()
	})
}

// features returns the features of a processor.
func features(processor cpuid.Function) cpuid.FeatureSet {
	return cpuid.FeatureSet{Function: remembered{processor, map[cpuid.In]cpuid.Out{}}}.Fixed()
}

// remembered has the answers of a function.
type remembered struct {
	function cpuid.Function
	answers  map[cpuid.In]cpuid.Out
}

// Query implements [cpuid.Function].
func (r remembered) Query(in cpuid.In) cpuid.Out {
	out, ok := r.answers[in]
	if !ok {
		out = r.function.Query(in)
		r.answers[in] = out
	}
	return out
}
