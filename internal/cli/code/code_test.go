package code

import "testing"

func TestGoesOn(t *testing.T) {
	for _, tt := range []struct {
		language, code string
		want           bool
	}{
		{"", "x = 1\n", false},
		{"", "f(1,\n", true},
		{"", "f(1,\n2)\n", false},
		{"", "for x in y:\n", true},
		{"", "for x in y:\n  print(x)\n", true},
		{"", "for x in y:\n  print(x)\n\n", false},
		{"", "if x: print(1) # a comment (\n", false},
		{"", "for x in y: # comment\n", true},
		{"", "@decorator\n", true},
		{"", "x = '''a\n", true},
		{"", "x = '''a\nb'''\n", false},
		{"", "x = 'it\\'s ('\n", false},
		{"", "x = 'broken (\n", false},
		{"", "x = 1 + \\\n", true},
		{"python", "\"(\"\n", false},
		{"javascript", "const f = () => {\n", true},
		{"javascript", "const f = () => {\n}\n", false},
		{"javascript", "`a\n", true},
		{"javascript", "// (\n", false},
		{"javascript", "f('# {')\n", false},
		{"bash", "echo 'a\n", true},
		{"bash", "echo ${#x}\n", false},
		{"bash", "f() {\n", true},
		{"bash", "echo # (\n", false},
	} {
		if got := goesOn(tt.language, tt.code); got != tt.want {
			t.Errorf("goesOn(%q, %q) = %v, want %v", tt.language, tt.code, got, tt.want)
		}
	}
}
