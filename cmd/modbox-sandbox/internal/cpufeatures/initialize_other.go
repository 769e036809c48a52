//go:build !amd64

package cpufeatures

// Initialize leaves everything to gVisor: other processors are asked by loads of registers or files, which cost nothing.
func Initialize() {}
