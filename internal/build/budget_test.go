package build

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/sandbox"
)

// continued puts an instruction on several lines, as none may have more than 64 KiB.
func continued(s string) string {
	const most = 50_000
	var lines []string
	for ; len(s) > most; s = s[most:] {
		lines = append(lines, s[:most])
	}
	return strings.Join(append(lines, s), "\\\n")
}

// TestHostileDockerfiles: each of these took the server seconds to days.
func TestHostileDockerfiles(t *testing.T) {
	times := strings.Repeat
	for name, c := range map[string]struct{ source, want string }{
		"PatternOfAVariable":   {"ARG X=" + times("a", 32<<10) + "\nARG P=" + times("?", 32<<10) + "\nARG Y=${X%%$P}\nFROM a", "too much work"},
		"ManyPatterns":         {"ARG X=" + times("a", 3000) + "\nARG P=" + times("*a", 80) + "b\n" + times("ARG Y=${X%%$P}\n", 900) + "FROM a", "too much work"},
		"ManyPlainPatterns":    {"ARG X=" + times("a", 1000) + "\n" + times("ARG Y=${X##"+times("*a", 50)+"b}\n", 900) + "FROM a", "too much work"},
		"AfterFrom":            {"FROM scratch\nARG X=" + times("a", 32<<10) + "\nARG P=" + times("?", 32<<10) + "\nENV Y=${X#$P}\n", "too much work"},
		"Replacements":         {"ARG X=" + times("a", 13_000) + "\n" + times("ARG Y=${X//a/b}\n", 900) + "FROM a", "too much work"},
		"LongReplacement":      {"ARG X=" + times("a", 2000) + "\nARG Y=${X//a/" + times("b", 60_000) + "}\nFROM a", "too long"},
		"LettersOfAll":         {"ARG é=" + times("a", 20_000) + "\nARG Y=${é//a/$é}\nFROM a", "too long"},
		"NestedReplacements":   {"ARG X=aaaaaaaaaa\nARG Y=" + times("${X//a/", 9) + "b" + times("}", 9) + "\nFROM a", "too long"},
		"NestedDefaults":       {"ARG Y=" + times("${Y:-", 400) + times("x", 60_000) + times("}", 400) + "\nFROM a", "too much work"},
		"NestedInHereDoc":      {"FROM a\nRUN <<" + continued(times("${Y:-", 20_000)+times("x", 100_000)+times("}", 20_000)), "instructions that are too long"},
		"NestedOnbuild":        {"FROM a\n" + continued(times("ONBUILD ", 30_000)), "instructions that are too long"},
		"HereDocs":             {"FROM a\nCOPY" + continued(times(" <<A", 40_000)) + " /\n" + times("A\n", 40_000), "here documents"},
		"ArgsBeforeFrom":       {times("ARG A\n", 1000) + "FROM a", "more than 1000 instructions"},
		"ManyArgsBeforeFrom":   {"ARG" + continued(times(" a", 5000)) + "\nFROM a", "4096 variables"},
		"ManyVariables":        {"FROM scratch\nENV" + continued(times(" a=1", 5000)), "4096 variables"},
		"ManyLabels":           {"FROM scratch\nLABEL" + continued(times(" a=1", 5000)), "4096 variables"},
		"ManyPorts":            {"FROM scratch\nEXPOSE" + continued(times(" 1-65535", 10_000)), "too much work"},
		"ManyVolumesAndMore":   {"FROM scratch\nVOLUME" + continued(volumes(40_000)) + times("\nCMD x", 990), "too much work"},
		"NestedInPatterns":     {"ARG Y=" + times("${Y/x}", 400) + times("x", 60_000) + times("/x}", 400) + "\nFROM a", "too much work"},
		"ZeroBytes":            {"FROM a\nENV A=\x00", "zero bytes"},
		"NoUTF8":               {"FROM a\nENV A=\xff", "must be UTF-8"},
		"InstructionsInFuture": {"FROM a\n" + times("CMD x\n", 1000), "more than 1000 instructions"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBuilder(t, 10)
			_, err := b.Build(t.Context(), sandbox.Caller{Workspace: "me"}, Request{Source: []byte(c.source)}, bytes.NewReader(emptyTar), func(Event) {})
			if sandbox.CodeOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Build = %.300v, want an error with %q", err, c.want)
			}
		})
	}
}

func volumes(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, " %x", i)
	}
	return b.String()
}

// TestUsualDockerfiles: a Dockerfile as people write it takes a small part of the budget.
func TestUsualDockerfiles(t *testing.T) {
	source := "ARG VERSION=3.12.4\nARG BASE=python:${VERSION%.*}-slim\nFROM $BASE\n"
	for i := range 100 {
		source += fmt.Sprintf("ARG V%d=${VERSION//./-}\nENV A%d=${A%d:-${V%d#*-}}/bin:$PATH B%d=\"${VERSION%%%%.*}\"\n", i, i, i, i, i)
		source += "RUN set -eux; \\\n" + strings.Repeat("  # why\n  echo ${A} ${B:-$C}; \\\n", 30) + "  true\n"
	}
	source += "COPY <<EOF /etc/app.conf\n" + strings.Repeat("name=${VERSION%.*} other=${BASE} plain\n", 200) + "EOF\n"
	b := &budget{ctx: t.Context()}
	p, err := parse(b, []byte(source), nil, "")
	if err != nil {
		t.Fatal(err)
	}
	if got := p.stages[0].base; got != "python:3.12-slim" {
		t.Errorf("FROM is %q, want python:3.12-slim", got)
	}
	v := &variables{lex: p.vars.lex, args: map[string]string{"VERSION": "3.12.4", "BASE": "a"}, env: map[string]string{"PATH": strings.Repeat("/usr/bin:", 20)}, budget: b}
	for range 100 {
		if got, err := v.expand("${VERSION//./-}:$PATH"); err != nil || !strings.HasPrefix(got, "3-12-4:/usr") {
			t.Fatalf("expand = %.30q, %v", got, err)
		}
	}
	if _, err := v.expand(strings.Repeat("name=${VERSION%.*} other=${BASE} plain\n", 200)); err != nil {
		t.Errorf("expand a here document: %v", err)
	}
	if b.steps > workMax/4 {
		t.Errorf("it took %d steps of %d", b.steps, workMax)
	}
}

// TestValuesEndWithTheBudget: what is too much is not given to the parser's library.
func TestValuesEndWithTheBudget(t *testing.T) {
	v := &variables{args: map[string]string{"X": strings.Repeat("a", 32<<10), "P": strings.Repeat("?", 32<<10)}, budget: &budget{ctx: t.Context()}}
	env := v.newWordEnv("${X%%$P}")
	if got, _ := env.Get("P"); len(got) != 32<<10 {
		t.Errorf("the pattern has %d bytes, want %d", len(got), 32<<10)
	}
	if got, ok := env.Get("X"); got != "" || !ok || env.err == nil {
		t.Errorf("the value has %d bytes and the error %v, want none and an error", len(got), env.err)
	}
}

// TestCommentsCostNothing: the library compares each with each argument of the ARG below.
func TestCommentsCostNothing(t *testing.T) {
	result, err := readTree([]byte("# a is this\n# b is that\nARG a b\nFROM x"))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range result.AST.Children {
		if len(n.PrevComment) > 0 {
			t.Errorf("%s has the comments %q", n.Value, n.PrevComment)
		}
	}
}

// TestBuildEndsWithItsClient: also while variables are replaced, before and after FROM.
func TestBuildEndsWithItsClient(t *testing.T) {
	for name, source := range map[string]string{"BeforeFrom": "ARG A=1\nFROM a", "AfterFrom": "FROM scratch\nWORKDIR /x\nENV A=1"} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			b := newBuilder(t, 10)
			if name == "AfterFrom" {
				_, err := b.Build(ctx, sandbox.Caller{Workspace: "me"}, Request{Source: []byte(source)}, bytes.NewReader(emptyTar), func(e Event) {
					if strings.HasPrefix(e.Instruction, "WORKDIR") {
						cancel()
					}
				})
				if !errors.Is(err, context.Canceled) {
					t.Errorf("Build = %v, want %v", err, context.Canceled)
				}
				return
			}
			cancel()
			if _, err := parse(&budget{ctx: ctx}, []byte(source), nil, ""); !errors.Is(err, context.Canceled) {
				t.Errorf("parse = %v, want %v", err, context.Canceled)
			}
		})
	}
}
