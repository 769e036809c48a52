package main

import (
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

const root = "../.."

// built builds the site of this repository.
func built(t *testing.T) (*site, fs.FS) {
	t.Helper()
	s, err := load(root)
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	if err := s.build(out); err != nil {
		t.Fatal(err)
	}
	return s, os.DirFS(out)
}

// document has the ids and links of an HTML page.
type document struct {
	ids   map[string]bool
	links []string // href and src
}

func read(t *testing.T, files fs.FS, name string) document {
	t.Helper()
	f, err := files.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tree, err := html.Parse(f)
	if err != nil {
		t.Fatal(err)
	}
	d := document{ids: map[string]bool{}}
	for n := range tree.Descendants() {
		if n.Type == html.ElementNode && n.Data == "script" {
			t.Errorf("%s has a script", name)
		}
		for _, a := range n.Attr {
			switch a.Key {
			case "id":
				if d.ids[a.Val] {
					t.Errorf("%s has two elements with id %q", name, a.Val)
				}
				d.ids[a.Val] = true
			case "href", "src":
				if n.Data != "a" && strings.Contains(a.Val, "//") {
					t.Errorf("%s loads %s from elsewhere", name, a.Val)
				}
				d.links = append(d.links, a.Val)
			}
		}
	}
	return d
}

// TestSite follows every link of the site as a browser does.
func TestSite(t *testing.T) {
	_, files := built(t)
	names, err := fs.Glob(files, "*.html")
	if err != nil {
		t.Fatal(err)
	}
	below, err := fs.Glob(files, "*/*.html")
	if err != nil {
		t.Fatal(err)
	}
	documents := map[string]document{}
	for _, name := range append(names, below...) {
		documents[name] = read(t, files, name)
	}
	if len(documents) < 30 {
		t.Fatalf("the site has %d pages only", len(documents))
	}
	for name, d := range documents {
		for _, link := range d.links {
			u, err := url.Parse(link)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if u.Scheme != "" {
				continue
			}
			to := name
			if u.Path != "" {
				to = path.Join(path.Dir(name), u.Path)
			}
			if _, err := fs.Stat(files, to); err != nil {
				t.Errorf("%s: the link to %s leads nowhere", name, link)
			}
			if u.Fragment != "" && !documents[to].ids[u.Fragment] {
				t.Errorf("%s: the link to %s leads to no element", name, link)
			}
		}
	}
}

// TestMarkdownBesideHTML follows the links of llms.txt and of the pages' Markdown.
func TestMarkdownBesideHTML(t *testing.T) {
	s, files := built(t)
	follow := func(name string) (count int) {
		content, err := fs.ReadFile(files, name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\]\(([^)#\s]+)(#[^)]*)?\)`).FindAllStringSubmatch(unfenced(string(content)), -1) {
			if strings.Contains(m[1], ":") {
				continue
			}
			count++
			if _, err := fs.Stat(files, path.Join(path.Dir(name), m[1])); err != nil {
				t.Errorf("%s: the link to %s leads nowhere", name, m[1])
			}
		}
		return count
	}
	if got, want := follow("llms.txt"), len(s.index.entries()); got != want {
		t.Errorf("llms.txt has %d pages, want %d", got, want)
	}
	for name := range s.pages {
		follow(published(name, ".md"))
	}
}

// unfenced returns Markdown without its code.
func unfenced(page string) string {
	page = regexp.MustCompile("(?ms)^ *```.*?^ *```").ReplaceAllString(page, "")
	return regexp.MustCompile("`[^`\n]*`").ReplaceAllString(page, "")
}

// TestLinksOfTheRepository follows the links of the Markdown files that are not pages.
func TestLinksOfTheRepository(t *testing.T) {
	s, err := load(root)
	if err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(root + "/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"examples/*.md", "sdk/*/*.md", "llms.txt"} {
		more, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, more...)
	}
	if len(names) < 6 {
		t.Fatalf("found only %v", names)
	}
	for _, name := range names {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		below, err := filepath.Rel(root, name)
		if err != nil {
			t.Fatal(err)
		}
		p := parse(filepath.ToSlash(below), source)
		err = p.links(func(address string) (string, error) {
			_, _, err := s.check(p, address)
			return address, err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// TestLLMs keeps llms.txt of the repository equal to the index.
func TestLLMs(t *testing.T) {
	s, err := load(root)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(root, "llms.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != s.index.llms("docs/") {
		t.Error("llms.txt differs from docs/README.md: run make gen")
	}
}

func TestBrokenDocumentation(t *testing.T) {
	good := map[string]string{
		"docs/README.md":        "# T\n\nAbout.\n\n## Start\n\n- [A](a.md): is a page.\n- [D](design/README.md): decisions.\n",
		"docs/design/README.md": "# D\n\nAll.\n\n## All\n\n- [X](x.md): is a decision.\n",
		"docs/design/x.md":      "# X\n\n[up](../a.md#two-words)\n",
		"docs/a.md":             "# A\n\n## Two words\n\n[self](#two-words) [x](design/x.md) [code](../go.mod) <https://example.com>\n",
		"go.mod":                "module x\n",
	}
	for name, c := range map[string]struct{ file, content, want string }{
		"good":               {},
		"page not listed":    {"docs/b.md", "# B\n", "docs/b.md is in no list"},
		"page missing":       {"docs/design/README.md", good["docs/design/README.md"] + "- [Y](y.md): is none.\n", "design/y.md, which does not exist"},
		"page listed twice":  {"docs/design/README.md", good["docs/design/README.md"] + "- [Y](x.md): again.\n", "twice"},
		"entry without text": {"docs/design/README.md", "# D\n\nAll.\n\n## All\n\n- [X](x.md)\n", "is not"},
		"link to no file":    {"docs/design/x.md", "# X\n\n[up](a.md)\n", "there is no docs/design/a.md"},
		"link to no heading": {"docs/design/x.md", "# X\n\n[up](../a.md#three)\n", "docs/a.md has no such heading"},
		"link within":        {"docs/a.md", "# A\n\n## Two words\n\n[self](#two)\n", "docs/a.md has no such heading"},
		"picture missing":    {"docs/a.md", "# A\n\n## Two words\n\n![p](pictures/p.svg)\n", "there is no docs/pictures/p.svg"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, content := range good {
				put(t, dir, file, content)
			}
			if c.file != "" {
				put(t, dir, c.file, c.content)
			}
			err := run(dir, filepath.Join(dir, "out"), "")
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func put(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := write(dir, name, []byte(content)); err != nil {
		t.Fatal(err)
	}
}

func TestSlugs(t *testing.T) {
	s := &slugs{}
	for _, c := range [][2]string{
		{"When it is full", "when-it-is-full"}, {"`modbox/ubuntu`", "modboxubuntu"}, {"Ports, links", "ports-links"},
		{"`not_found`", "not_found"}, {"When it is full", "when-it-is-full-1"}, {"a - b", "a---b"},
	} {
		if got := string(s.Generate([]byte(c[0]), 0)); got != c[1] {
			t.Errorf("%q: got %q, want %q", c[0], got, c[1])
		}
	}
}
