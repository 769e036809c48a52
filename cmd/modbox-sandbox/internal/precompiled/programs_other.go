//go:build !amd64

package precompiled

import "gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"

// programs is empty: run go generate on a machine of the architecture to add them.
var programs []precompiledseccomp.Program
