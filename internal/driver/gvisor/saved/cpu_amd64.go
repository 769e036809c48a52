package saved

import "gvisor.dev/gvisor/pkg/cpuid"

// cacheLine is the size that programs need to flush the cache.
func cacheLine(fs cpuid.FeatureSet) uint32 { return fs.CacheLine() }
