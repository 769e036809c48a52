// Command site builds the documentation's web site from the Markdown pages in docs: an HTML page
// for each, with the Markdown beside it, and llms.txt, a list of the pages for language models.
// The index docs/README.md gives the order and the navigation. A page that the index does not
// list and a link that leads nowhere are errors.
//
//	site -o build/site            builds the site
//	site -llms docs/ > llms.txt   prints llms.txt, with this prefix before the addresses of the pages
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	root := flag.String("root", ".", "the directory of the repository")
	out := flag.String("o", "build/site", "the directory of the site, which is replaced")
	llms := flag.String("llms", "", "print llms.txt with this prefix, and build nothing")
	flag.Parse()
	if err := run(*root, *out, *llms); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(root, out, llms string) error {
	s, err := load(root)
	if err != nil {
		return err
	}
	if llms != "" {
		_, err := os.Stdout.WriteString(s.index.llms(llms))
		return err
	}
	return s.build(out)
}
