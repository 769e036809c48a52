package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// repository is the place of the files that are not pages.
const repository = "https://github.com/modbox/modbox/blob/main/"

//go:embed page.html
var pageTemplate string

//go:embed site.css
var styles []byte

// site is the pages of the documentation, and their order.
type site struct {
	root  string // of the repository
	index index
	pages map[string]*page // by path in the repository
}

// load reads the pages below docs and checks that the index lists each of them once.
func load(root string) (*site, error) {
	s := &site{root: root, pages: map[string]*page{}}
	files, err := filepath.Glob(filepath.Join(root, "docs", "*"))
	if err != nil {
		return nil, err
	}
	for _, dir := range files {
		err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(file) != ".md" {
				return err
			}
			return s.add(file)
		})
		if err != nil {
			return nil, err
		}
	}
	if s.index, err = s.readIndex(); err != nil {
		return nil, err
	}
	return s, s.complete()
}

// add reads a page.
func (s *site) add(file string) error {
	source, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	name, err := filepath.Rel(s.root, file)
	if err != nil {
		return err
	}
	name = filepath.ToSlash(name)
	s.pages[name] = parse(name, source)
	return nil
}

func (s *site) readIndex() (index, error) {
	top, list := s.pages["docs/"+indexPage], s.pages["docs/"+decisions]
	if top == nil || list == nil {
		return index{}, fmt.Errorf("docs/%s or docs/%s is missing", indexPage, decisions)
	}
	return readIndex(string(top.source), string(list.source))
}

// complete returns an error unless the index lists each page once.
func (s *site) complete() error {
	listed := map[string]bool{"docs/" + indexPage: true}
	var errs []error
	for _, e := range s.index.entries() {
		name := "docs/" + e.Page
		if listed[name] {
			errs = append(errs, fmt.Errorf("the index lists %s twice", name))
		}
		if s.pages[name] == nil {
			errs = append(errs, fmt.Errorf("the index lists %s, which does not exist", name))
		}
		listed[name] = true
	}
	for name := range s.pages {
		if !listed[name] {
			errs = append(errs, fmt.Errorf("%s is in no list: add it to docs/%s", name, indexPage))
		}
	}
	return errors.Join(errs...)
}

// check returns the path in the repository and the fragment that an address on a page leads to, or
// an error when there is nothing. An address with a scheme has no path.
func (s *site) check(from *page, address string) (file, fragment string, err error) {
	if strings.Contains(address, "://") || strings.HasPrefix(address, "mailto:") {
		return "", "", nil
	}
	file, fragment, _ = strings.Cut(address, "#")
	if file == "" {
		file = from.path
	} else {
		file = path.Join(path.Dir(from.path), file)
	}
	if _, err := os.Stat(filepath.Join(s.root, filepath.FromSlash(file))); err != nil {
		return "", "", fmt.Errorf("link to %s: there is no %s", address, file)
	}
	to := s.pages[file]
	if file == from.path {
		to = from
	}
	if fragment != "" && (to == nil || !to.anchors[fragment]) {
		return "", "", fmt.Errorf("link to %s: %s has no such heading", address, file)
	}
	return file, fragment, nil
}

// address returns an address on a page of the site: pages are HTML, and files that the site does
// not have are in the repository.
func (s *site) address(from *page, address string) (string, error) {
	file, fragment, err := s.check(from, address)
	switch {
	case err != nil || file == "" || file == from.path:
		return address, err
	case s.pages[file] != nil:
		file = from.base("docs") + published(file, ".html")
	case strings.HasPrefix(file, "docs/"):
		file = from.base("docs") + strings.TrimPrefix(file, "docs/")
	default:
		file = repository + file
	}
	if fragment != "" {
		file += "#" + fragment
	}
	return file, nil
}

// published returns the path of a page on the site, with that ending.
func published(name, ending string) string {
	name = strings.TrimSuffix(strings.TrimPrefix(name, "docs/"), ".md")
	if path.Base(name) == "README" {
		name = path.Join(path.Dir(name), "index")
	}
	return name + ending
}

// build writes the site to a directory, which it replaces.
func (s *site) build(out string) error {
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	layout, err := template.New("page").Parse(pageTemplate)
	if err != nil {
		return err
	}
	var errs []error
	for name, p := range s.pages {
		errs = append(errs, write(out, published(name, ".md"), s.markdown(p)), s.write(out, layout, p))
	}
	errs = append(errs, write(out, "site.css", styles), write(out, "llms.txt", []byte(strings.ReplaceAll(s.index.llms(""), indexPage, "index.md"))))
	pictures := filepath.Join(s.root, "docs", "pictures")
	if err := os.CopyFS(filepath.Join(out, "pictures"), os.DirFS(pictures)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// outside finds addresses in Markdown that lead out of docs, or to a list of pages.
var outside = regexp.MustCompile(`\]\(((?:\.\./)*)([^)#:]*?)([^)/#:]*)(#[^)]*)?\)`)

// markdown returns the source of a page, with the addresses that it has on the site.
func (s *site) markdown(p *page) []byte {
	return outside.ReplaceAllFunc(p.source, func(m []byte) []byte {
		address := string(m[2 : len(m)-1])
		file, fragment, err := s.check(p, address)
		if err != nil || file == "" || file == p.path {
			return m
		}
		if fragment != "" {
			fragment = "#" + fragment
		}
		switch {
		case s.pages[file] != nil && path.Base(file) == indexPage:
			file = p.base("docs") + published(file, ".md")
		case !strings.HasPrefix(file, "docs/"):
			file = repository + file
		default:
			return m
		}
		return []byte("](" + file + fragment + ")")
	})
}

// view is a page as its template shows it.
type view struct {
	Base, Title, Page, Markdown string
	Index                       index
	Headings                    []heading
	Text                        template.HTML
	Before, After               *entry
}

// HTML returns the path of an entry's page on the site.
func (e entry) HTML() string { return published(e.Page, ".html") }

func (s *site) write(out string, layout *template.Template, p *page) error {
	if err := p.links(func(address string) (string, error) { return s.address(p, address) }); err != nil {
		return err
	}
	body, err := p.html()
	if err != nil {
		return err
	}
	v := view{
		Base: p.base("docs"), Title: p.title, Page: strings.TrimPrefix(p.path, "docs/"), Markdown: path.Base(published(p.path, ".md")),
		Index: s.index, Text: template.HTML(body),
	}
	if len(p.headings) > 3 && v.Page != indexPage {
		v.Headings = p.headings
	}
	all := s.index.entries()
	for i, e := range all {
		if e.Page != v.Page {
			continue
		}
		if i > 0 {
			v.Before = &all[i-1]
		}
		if i+1 < len(all) {
			v.After = &all[i+1]
		}
	}
	var b bytes.Buffer
	if err := layout.Execute(&b, v); err != nil {
		return fmt.Errorf("%s: %w", p.path, err)
	}
	return write(out, published(p.path, ".html"), b.Bytes())
}

// write writes a file of the site.
func write(out, name string, content []byte) error {
	file := filepath.Join(out, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o644)
}
