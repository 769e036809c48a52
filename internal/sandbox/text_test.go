package sandbox_test

import (
	"errors"
	"testing"

	"github.com/modbox/modbox/internal/sandbox"
)

func TestCheckText(t *testing.T) {
	for _, good := range []string{"a", "a b", "Müller & Söhne", "日本", "שלום", "👩\u200d🔬", "می\u200cخواهم", "\u00a0x"} {
		if err := sandbox.CheckText("name", good, 1, 20); err != nil {
			t.Errorf("CheckText(%q) = %v, want nil", good, err)
		}
	}
	if err := sandbox.CheckText("name", "", 0, 20); err != nil {
		t.Errorf("CheckText of nothing = %v, want nil where that is allowed", err)
	}
	for _, bad := range []string{
		"", " ", "   ", "\u00a0\u3000", "\u200b", "\ufeff\u200d", "a\x00", "a\nb", "\x1b[31m", "a\u0085", "a\u202eb", "\u2066a", "a\u200f", "a\u061c",
		"a\u2028b", "a\u2029", "\xff", "123456789012345678901",
	} {
		err := sandbox.CheckText("name", bad, 1, 20)
		var public *sandbox.Error
		if !errors.As(err, &public) || public.Code != sandbox.Invalid || public.Field != "name" {
			t.Errorf("CheckText(%q) = %v, want an error that names the field", bad, err)
		}
	}
}
