package archtest_test

import (
	"bufio"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "lower the numbers in testdata/phrases.txt to the counts of today")

// phraseList is the number of phrases that the texts of each directory contain. It only
// shrinks; -update lowers its numbers.
const phraseList = "testdata/phrases.txt"

// phrase is a turn of speech that makes a reader stumble, and the advice for its place.
type phrase struct {
	pattern *regexp.Regexp // its first group, if there is any, is the match
	advice  string
}

var phrases = []phrase{
	{regexp.MustCompile(`(?:^|\. +)((?:Who|What|Whom|Whoever|Whatever)\b)`), "begin with a noun"},
	{regexp.MustCompile(`^((?:who|what|whom|whoever|whatever) )`), "begin with a noun"},
	{regexp.MustCompile(`\b(?:is|are) (?:what|who|whom) `), "name the thing"},
	{regexp.MustCompile(`\bthat of\b|\bthose (?:of|that|which|who|whose|beyond)\b`), "repeat the noun"},
	{regexp.MustCompile(`\b(?:is|are|was|were) (?:had|told|kept|left)\b`), "use an active verb that says what happens"},
	{regexp.MustCompile(`\bones?(?: that| which| who| whose|'s)\b|\bones\b`), "repeat the noun"},
	{regexp.MustCompile(`, too(?:[.,;:)]|$)`), `write "also", or nothing`},
	{regexp.MustCompile(`(?:^|[^-\w])((?:gate|door|room|news|flight|vault)s?\b)`), "write the term of the field: queue, lock, capacity, notification, operation"},
	{regexp.MustCompile(`\b[Ww]hoever\b|\b[Ff]or which\b.{0,60}\bgoes\b`), "name the actor"},
}

// notPhrases are legitimate uses of words that occur in phrases.
var notPhrases = regexp.MustCompile(`\bin[ -]flight\b|\b[Nn]ews ?(?:letter|feed)s?\b|\b(?:is|are) told apart\b`)

// text is a passage that people read: a comment, a message, or a page.
type text struct {
	file    string // below the module
	line    int    // its first line
	content string
}

// dir returns the directory that the text counts for: at most two names deep, so that a package
// can be divided into packages below it.
func (x text) dir() string {
	names := strings.Split(x.file, "/")
	names = names[:len(names)-1]
	if len(names) == 0 {
		return "."
	}
	return strings.Join(names[:min(2, len(names))], "/")
}

// found returns a line for each phrase in the text, with its place and the advice for it.
func (x text) found() []string {
	plain := notPhrases.ReplaceAllStringFunc(flat(x.content), func(s string) string { return strings.Repeat("-", len(s)) })
	var list []string
	for _, p := range phrases {
		for _, at := range p.pattern.FindAllStringSubmatchIndex(plain, -1) {
			start := at[0]
			if len(at) > 2 {
				start = at[2]
			}
			if question(plain[start:]) {
				continue
			}
			line := x.line + strings.Count(x.content[:start], "\n")
			around := plain[max(0, start-20):min(len(plain), start+40)]
			list = append(list, fmt.Sprintf("%s:%d: %q: %s", x.file, line, strings.Join(strings.Fields(around), " "), p.advice))
		}
	}
	return list
}

// question reports whether the sentence that begins s is a question.
func question(s string) bool {
	end := strings.IndexAny(s, ".?!")
	return end >= 0 && s[end] == '?'
}

// Where a new sentence begins although no full stop is before it: after an empty line, and
// in the items of a list.
var (
	paragraph = regexp.MustCompile(`[^.\n]\n\n`)
	item      = regexp.MustCompile(`\n *(?:-|\d\.) `)
)

// flat returns s in one line, with the offsets of s and a full stop before each item and paragraph.
func flat(s string) string {
	stop := func(m string) string { return "." + strings.Repeat(" ", len(m)-1) }
	s = item.ReplaceAllStringFunc(s, stop)
	s = paragraph.ReplaceAllStringFunc(s, stop)
	return strings.ReplaceAll(s, "\n", " ")
}

// pagesBeside are the pages outside of docs/.
var pagesBeside = []string{"README.md", "AGENTS.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "bench/README.md", "sdk/python/README.md", "sdk/typescript/README.md"}

// texts returns what people read of the hand-written files: the comments and messages of Go, the
// pages, and the comments of the clients for TypeScript and Python.
func texts(t *testing.T) []text {
	t.Helper()
	root := filepath.Join("..", "..")
	var list []text
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && ignored(d.Name()):
			return filepath.SkipDir
		case d.IsDir():
			return nil
		}
		below, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		below = filepath.ToSlash(below)
		switch {
		case slices.Contains(pagesBeside, below), strings.HasPrefix(below, "docs/") && strings.HasSuffix(below, ".md"):
			page, err := os.ReadFile(path)
			list = append(list, text{below, 1, prose(string(page))})
			return err
		case strings.HasPrefix(below, "sdk/typescript/src/"), strings.HasPrefix(below, "sdk/python/src/"):
			if _, known := commentsOf[filepath.Ext(below)]; !known {
				return nil
			}
			found, err := clientTexts(path, below, filepath.Ext(below))
			list = append(list, found...)
			return err
		case strings.HasSuffix(below, ".go") && !strings.HasPrefix(below, "internal/archtest/"):
			found, err := goTexts(path, below)
			list = append(list, found...)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 {
		t.Fatal("the module has no comments")
	}
	return list
}

// goTexts returns the comments of a source file and, unless it is a test, its messages:
// string literals of at least three words.
func goTexts(path, below string) ([]text, error) {
	positions := token.NewFileSet()
	f, err := parser.ParseFile(positions, path, nil, parser.ParseComments)
	if err != nil || ast.IsGenerated(f) {
		return nil, err
	}
	var list []text
	add := func(at token.Pos, content string) {
		list = append(list, text{below, positions.Position(at).Line, content})
	}
	for _, group := range f.Comments {
		add(group.Pos(), withoutCode(group.Text()))
	}
	if strings.HasSuffix(path, "_test.go") {
		return list, nil
	}
	ast.Inspect(f, func(n ast.Node) bool {
		literal, ok := n.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		if s, err := strconv.Unquote(literal.Value); err == nil && len(strings.Fields(s)) >= 3 {
			add(literal.Pos(), s)
		}
		return true
	})
	return list, nil
}

// withoutCode returns a comment with its indented lines empty: they are code and output.
func withoutCode(comment string) string {
	lines := strings.Split(comment, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "\t") {
			lines[i] = ""
		}
	}
	return strings.Join(lines, "\n")
}

var (
	codeSpan = regexp.MustCompile("`[^`\n]*`")
	linkTo   = regexp.MustCompile(`\]\([^)\n]*\)`)
)

// prose returns the lines of a page with code and headings empty, and without code and link
// targets in the other lines.
func prose(page string) string {
	lines := strings.Split(page, "\n")
	fenced := false
	for i, line := range lines {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		if fence || fenced || strings.HasPrefix(line, "#") {
			lines[i] = ""
		}
		fenced = fenced != fence
		lines[i] = linkTo.ReplaceAllString(codeSpan.ReplaceAllString(lines[i], "`"), "]")
	}
	return strings.Join(lines, "\n")
}

// TestPlainWords counts phrases per directory. Its list can only shrink.
func TestPlainWords(t *testing.T) {
	counts, places := map[string]int{}, map[string][]string{}
	for _, x := range texts(t) {
		dir, found := x.dir(), x.found()
		counts[dir] += len(found)
		places[dir] = append(places[dir], found...)
	}
	allowed := readPhrases(t)
	if *update {
		for dir := range allowed {
			allowed[dir] = min(allowed[dir], counts[dir])
		}
		writePhrases(t, allowed)
	}
	for dir, n := range counts {
		if n < allowed[dir] {
			t.Logf("%s has fewer phrases: go test ./internal/archtest -update", dir)
		}
		if n > allowed[dir] {
			t.Logf("phrases in %s:\n%s", dir, strings.Join(places[dir], "\n"))
		}
	}
	allowed.check(t, counts, 0, "phrases that make readers stumble", "write them in plain words")
}

func readPhrases(t *testing.T) exceptions {
	t.Helper()
	f, err := os.Open(phraseList)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	list := exceptions{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		dir, number, _ := strings.Cut(lines.Text(), " ")
		n, err := strconv.Atoi(number)
		if err != nil {
			t.Fatalf("%s: %q is not a directory and a number: %v", phraseList, lines.Text(), err)
		}
		list[dir] = n
	}
	return list
}

func writePhrases(t *testing.T, list exceptions) {
	t.Helper()
	var b strings.Builder
	for _, dir := range slices.Sorted(maps.Keys(list)) {
		if list[dir] > 0 {
			fmt.Fprintf(&b, "%s %d\n", dir, list[dir])
		} else {
			delete(list, dir)
		}
	}
	if err := os.WriteFile(phraseList, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
