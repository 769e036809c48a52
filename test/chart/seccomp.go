package chart

import (
	"encoding/json"
	"path/filepath"
	"slices"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// Profile is the seccomp profile of workers, from the directory of this package.
var Profile = filepath.Join("..", "..", "deploy", "seccomp", "modbox-worker.json")

// boxSyscalls are the system calls that gVisor's processes make in the user namespace of their box, and that the default profile permits to
// privileged containers only.
var boxSyscalls = []string{"clone", "mount", "pivot_root", "umount2"}

// WorkerProfile returns the seccomp profile of workers: the default profile of container runtimes for a container without capabilities,
// and the system calls of boxes. Kubernetes takes no conditions in profiles, so the conditions of the default profile are resolved.
func WorkerProfile() ([]byte, error) {
	def := seccomp.DefaultProfile()
	out := specs.LinuxSeccomp{DefaultAction: def.DefaultAction, DefaultErrnoRet: def.DefaultErrnoRet}
	for _, a := range def.ArchMap {
		if a.Arch == specs.ArchX86_64 || a.Arch == specs.ArchAARCH64 {
			out.Architectures = append(append(out.Architectures, a.Arch), a.SubArches...)
		}
	}
	for _, rule := range def.Syscalls {
		if !applies(rule) {
			continue
		}
		rule.Names = slices.DeleteFunc(slices.Clone(rule.Names), func(name string) bool { return slices.Contains(boxSyscalls, name) })
		if len(rule.Names) > 0 {
			out.Syscalls = append(out.Syscalls, rule.LinuxSyscall)
		}
	}
	out.Syscalls = append(out.Syscalls, specs.LinuxSyscall{Names: boxSyscalls, Action: specs.ActAllow})
	text, err := json.MarshalIndent(out, "", "\t")
	return append(text, '\n'), err
}

// applies reports whether a rule is for containers without capabilities on amd64 or arm64, with Linux 5.4 or newer.
func applies(rule *seccomp.Syscall) bool {
	ours := func(arch string) bool { return slices.Contains([]string{"amd64", "x86", "x32", "arm64", "arm"}, arch) }
	if in := rule.Includes; in != nil && (len(in.Caps) > 0 || len(in.Arches) > 0 && !slices.ContainsFunc(in.Arches, ours)) {
		return false
	}
	return rule.Excludes == nil || !slices.ContainsFunc(rule.Excludes.Arches, ours)
}
