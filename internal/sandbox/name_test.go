package sandbox_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/sandbox"
)

func TestCheckName(t *testing.T) {
	long := strings.Repeat("a", sandbox.NameMax)
	for _, name := range []string{"", "a", "0", "agent-42", "UPPER.case_1", "a--", long} {
		if err := sandbox.CheckName("name", name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for name, similar := range map[string]string{
		"UPPER case!": "UPPER-case", "-a": "a", "..": "", "日本": "", "a/b": "a-b", "ä b": "b", "a\n": "a", long + "bb": long, " x ": "x",
	} {
		err := sandbox.CheckName("names[1]", name)
		var e *sandbox.Error
		if !errors.As(err, &e) || e.Code != sandbox.Invalid || e.Field != "names[1]" || !strings.Contains(e.Message, "begin with a letter or digit") {
			t.Errorf("%q: %v", name, err)
			continue
		}
		if _, got, _ := strings.Cut(e.Message, "; for example "); got != similar {
			t.Errorf("%q: suggests %q, want %q", name, got, similar)
		}
		if similar != "" && sandbox.CheckName("name", similar) != nil {
			t.Errorf("%q: the suggested %q is not accepted", name, similar)
		}
	}
}
