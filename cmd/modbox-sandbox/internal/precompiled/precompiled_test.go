package precompiled

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"gvisor.dev/gvisor/pkg/seccomp"
	"gvisor.dev/gvisor/pkg/sentry/platform"
	_ "gvisor.dev/gvisor/pkg/sentry/platform/platforms"
	"gvisor.dev/gvisor/runsc/boot/filter"
	"gvisor.dev/gvisor/runsc/boot/filter/config"
)

// The committed filters must equal the filters that gVisor would compile itself: the quick twin of
// go generate, which takes too long for a test. As the filters name the process that compiles them,
// which in a box is process 1, the test runs itself as process 1.
func TestProgramsAreCurrent(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("filters are committed for amd64 only")
	}
	if os.Getpid() != 1 {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestProgramsAreCurrent$", "-test.v")
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}},
		}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestProgramsAreCurrent") {
			t.Errorf("as process 1: %v\n%s", err, out)
		}
		return
	}
	systrap, err := platform.Lookup("systrap")
	if err != nil {
		t.Fatal(err)
	}
	Register()
	for _, info := range systrap.PrecompiledSeccompInfo() {
		opt := config.Options{Platform: info, ControllerFD: 13}
		p, ok := filter.GetPrecompiled(opt.ConfigKey())
		if !ok {
			t.Errorf("no filter for %s: run go generate", opt.ConfigKey())
			continue
		}
		got, err := p.RenderInstructions(opt.Vars())
		if err != nil {
			t.Fatal(err)
		}
		rules, denyRules := config.Rules(opt)
		want, _, err := (&seccomp.Program{
			RuleSets: []seccomp.RuleSet{{Rules: denyRules}, {Rules: rules, Action: seccomp.Allow}},
			Options:  config.SeccompOptions(opt),
		}).Build()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("the filter for %s is not current: run go generate", opt.ConfigKey())
		}
	}
}
