package main

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

// indexPage is the page that lists all others, and decisions is the list of the decisions, which
// the index names as one page.
const (
	indexPage = "README.md"
	decisions = "design/README.md"
)

// index is the contents of the documentation: the pages in the order in which people read them.
type index struct {
	Title    string
	Summary  string // in Markdown
	Sections []section
	// Optional has the pages that only the list of the decisions names.
	Optional section
}

// section is a part of the index.
type section struct {
	Title   string
	Entries []entry
}

// entry is a page in the index.
type entry struct {
	Title string
	// Page is the path of the page below docs.
	Page string
	// About is a sentence about the page, in Markdown.
	About string
}

var entryLine = regexp.MustCompile(`^- \[([^\]]+)\]\(([^)#]+\.md)\): (.+)$`)

// readIndex reads the index: a title, a paragraph, and below each heading of the second level a
// list of links, each followed by a colon and a sentence. Other text is not allowed, except before the
// first heading.
func readIndex(text, optional string) (index, error) {
	x := index{Optional: section{Title: "Optional"}}
	var err error
	if x.Title, x.Summary, x.Sections, err = sections(text, indexPage); err != nil {
		return index{}, err
	}
	_, _, parts, err := sections(optional, decisions)
	if err != nil {
		return index{}, err
	}
	for _, part := range parts {
		x.Optional.Entries = append(x.Optional.Entries, part.Entries...)
	}
	return x, nil
}

// sections reads a list of pages at a path below docs.
func sections(text, at string) (title, summary string, list []section, err error) {
	blocks := strings.Split(strings.TrimSpace(text), "\n\n")
	title, found := strings.CutPrefix(blocks[0], "# ")
	if !found || len(blocks) < 3 {
		return "", "", nil, fmt.Errorf("docs/%s: must begin with a title and a paragraph", at)
	}
	summary = unwrap(blocks[1])
	for _, block := range blocks[2:] {
		if heading, ok := strings.CutPrefix(block, "## "); ok {
			list = append(list, section{Title: heading})
			continue
		}
		if len(list) == 0 {
			continue
		}
		part := &list[len(list)-1]
		for line := range strings.SplitSeq(strings.ReplaceAll(block, "\n  ", " "), "\n") {
			m := entryLine.FindStringSubmatch(line)
			if m == nil {
				return "", "", nil, fmt.Errorf("docs/%s: %q is not \"- [title](page.md): sentence\"", at, line)
			}
			part.Entries = append(part.Entries, entry{Title: m[1], Page: path.Join(path.Dir(at), m[2]), About: m[3]})
		}
	}
	return title, summary, list, nil
}

func unwrap(paragraph string) string { return strings.Join(strings.Fields(paragraph), " ") }

// entries returns all pages in order.
func (x index) entries() []entry {
	var list []entry
	for _, part := range x.Sections {
		list = append(list, part.Entries...)
	}
	return append(list, x.Optional.Entries...)
}

// llms returns the index as https://llmstxt.org describes it, with a prefix before the path of
// each page.
func (x index) llms(prefix string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n> %s\n", x.Title, x.Summary)
	for _, part := range append(x.Sections, x.Optional) {
		fmt.Fprintf(&b, "\n## %s\n\n", part.Title)
		for _, e := range part.Entries {
			fmt.Fprintf(&b, "- [%s](%s%s): %s\n", e.Title, prefix, e.Page, plainLinks.ReplaceAllString(e.About, "$1"))
		}
	}
	return b.String()
}

// plainLinks finds links, whose text remains where the address would have another base.
var plainLinks = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
