package archtest_test

import (
	"os"
	"regexp"
	"strings"
)

// commentMarks are what begins and ends comments in a language, and what begins their lines.
type commentMarks struct {
	line  *regexp.Regexp // the beginning of a line that is a comment
	block string         // begins a comment of several lines
	end   string         // ends it
	inner *regexp.Regexp // the beginning of a line of such a comment
}

// commentsOf are the languages of the clients, by the ending of their files.
var commentsOf = map[string]commentMarks{
	".ts": {regexp.MustCompile(`^\s*// ?`), "/**", "*/", regexp.MustCompile(`^\s*\* ?`)},
	".py": {regexp.MustCompile(`^\s*#:? ?`), `"""`, `"""`, regexp.MustCompile(`^\s*`)},
}

// clientTexts returns the comments of a source file of a client, unless it is generated.
func clientTexts(path, below, ending string) ([]text, error) {
	source, err := os.ReadFile(path)
	if err != nil || generatedClient.Match(source) {
		return nil, err
	}
	marks := commentsOf[ending]
	var list []text
	var now *text // the comment that the line goes on
	block := false
	add := func(line int, s string) {
		if now == nil {
			list = append(list, text{below, line, s})
			now = &list[len(list)-1]
			return
		}
		now.content += "\n" + s
	}
	for i, line := range strings.Split(string(source), "\n") {
		switch rest, begins := strings.CutPrefix(strings.TrimSpace(line), marks.block); {
		case block:
			s, ends := strings.CutSuffix(strings.TrimSpace(line), marks.end)
			add(i+1, marks.inner.ReplaceAllString(s, ""))
			block = !ends
		case begins:
			now = nil
			s, ends := strings.CutSuffix(rest, marks.end)
			add(i+1, strings.TrimSpace(s))
			block = !ends
		case marks.line.MatchString(line):
			add(i+1, marks.line.ReplaceAllString(line, ""))
			continue
		default:
			now = nil
			continue
		}
		if !block {
			now = nil
		}
	}
	for i := range list {
		list[i].content = prose(list[i].content)
	}
	return list, nil
}

// generatedClient is in the beginning of files that a program wrote.
var generatedClient = regexp.MustCompile(`(?i)\A(?:.*\n){0,4}.*(?:generated|made (?:by|from))`)
