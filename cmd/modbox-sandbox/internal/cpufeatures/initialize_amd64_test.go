package cpufeatures

import (
	"fmt"
	"strings"
	"testing"
	_ "unsafe" // for go:linkname

	"github.com/google/go-cmp/cmp"
	"gvisor.dev/gvisor/pkg/cpuid"
)

//go:linkname archInitialize gvisor.dev/gvisor/pkg/cpuid.archInitialize
func archInitialize()

// TestInitialize compares all that gVisor then has with what it has without us.
func TestInitialize(t *testing.T) {
	Initialize()
	cpuid.Initialize() // must leave ours
	ours, features, info := host, unvarying(host), cpuInfo()
	if strings.Contains(info, "cpu MHz\t\t: 0.000") {
		t.Errorf("the frequency is missing in\n%s", info)
	}
	archInitialize()
	if diff := cmp.Diff(unvarying(host), features); diff != "" {
		t.Errorf("features (-gVisor's, +ours):\n%s", diff)
	}
	theirs := host
	theirs.Function, ours.Function = nil, nil
	if want, got := fmt.Sprintf("%+v", theirs), fmt.Sprintf("%+v", ours); want != got {
		t.Errorf("beside the features there is %s, want %s", got, want)
	}
}

// unvarying returns features without the number of the processor that answers.
func unvarying(fs cpuid.FeatureSet) cpuid.Static {
	static := fs.ToStatic()
	in := cpuid.In{Eax: 1}
	out := static[in]
	out.Ebx &= 0x00ff_ffff
	static[in] = out
	return static
}

func cpuInfo() string {
	var b strings.Builder
	host.WriteCPUInfoTo(0, 1, &b)
	return b.String()
}

// counted counts the questions.
type counted struct {
	cpuid.Native
	asked map[cpuid.In]int
}

func (c *counted) Query(in cpuid.In) cpuid.Out {
	c.asked[in]++
	return c.Native.Query(in)
}

func TestEachIsAskedOnce(t *testing.T) {
	c := &counted{asked: map[cpuid.In]int{}}
	features(c)
	if len(c.asked) < 20 {
		t.Errorf("only %d were asked", len(c.asked))
	}
	for in, n := range c.asked {
		if n != 1 {
			t.Errorf("%v was asked %d times", in, n)
		}
	}
}
