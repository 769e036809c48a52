package main

import (
	"bytes"
	"fmt"
	"path"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

var markdown = goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID()))

// page is a Markdown page.
type page struct {
	// path is the page's path in the repository, with slashes.
	path     string
	source   []byte
	document ast.Node
	title    string
	headings []heading
	anchors  map[string]bool
}

// heading is a heading of the second level.
type heading struct{ ID, Text string }

func parse(path string, source []byte) *page {
	document := markdown.Parser().Parse(text.NewReader(source), parser.WithContext(parser.NewContext(parser.WithIDs(&slugs{}))))
	p := &page{path: path, source: source, document: document, anchors: map[string]bool{}}
	p.each(func(n ast.Node) {
		h, ok := n.(*ast.Heading)
		if !ok {
			return
		}
		name, _ := h.AttributeString("id")
		id := string(name.([]byte))
		p.anchors[id] = true
		switch {
		case h.Level == 1 && p.title == "":
			p.title = plain(h, source)
		case h.Level == 2:
			p.headings = append(p.headings, heading{id, plain(h, source)})
		}
	})
	return p
}

// each calls f with each node of the page.
func (p *page) each(f func(ast.Node)) {
	_ = ast.Walk(p.document, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			f(n)
		}
		return ast.WalkContinue, nil
	})
}

// plain returns the text below a node without its marks.
func plain(n ast.Node, source []byte) string {
	var b strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		if t, ok := c.(*ast.Text); ok {
			b.Write(t.Value(source))
		} else {
			b.WriteString(plain(c, source))
		}
	}
	return b.String()
}

// links calls f with each address of the page, which f returns as it shall be.
func (p *page) links(f func(address string) (string, error)) error {
	var first error
	change := func(address *[]byte) {
		to, err := f(string(*address))
		if err != nil && first == nil {
			first = fmt.Errorf("%s: %w", p.path, err)
		}
		*address = []byte(to)
	}
	p.each(func(n ast.Node) {
		switch n := n.(type) {
		case *ast.Link:
			change(&n.Destination)
		case *ast.Image:
			change(&n.Destination)
		}
	})
	return first
}

// html returns the page's text as HTML.
func (p *page) html() (string, error) {
	var b bytes.Buffer
	if err := markdown.Renderer().Render(&b, p.source, p.document); err != nil {
		return "", fmt.Errorf("%s: %w", p.path, err)
	}
	// Wide tables scroll by themselves.
	return strings.NewReplacer("<table>", `<div class="wide"><table>`, "</table>", "</table></div>").Replace(b.String()), nil
}

// base returns the path, relative to the page, of the directory that has the path dir.
func (p *page) base(dir string) string {
	below := strings.TrimPrefix(path.Dir(p.path), dir)
	return strings.Repeat("../", strings.Count(below, "/"))
}

// slugs makes the ids of a page's headings in the way of GitHub, so that links to them lead to the
// same place there and here.
type slugs struct{ used map[string]int }

// Generate implements parser.IDs.
func (s *slugs) Generate(value []byte, _ ast.NodeKind) []byte {
	value = bytes.TrimSpace(plainLinks.ReplaceAll(value, []byte("$1")))
	slug := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, string(value))
	if s.used == nil {
		s.used = map[string]int{}
	}
	n, again := s.used[slug]
	s.used[slug] = n + 1
	if again {
		slug = fmt.Sprintf("%s-%d", slug, n)
	}
	return []byte(slug)
}

// Put implements parser.IDs.
func (s *slugs) Put([]byte) {}
