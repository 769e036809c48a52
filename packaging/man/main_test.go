package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/internal/cli"
)

func TestEachCommandHasAPage(t *testing.T) {
	dir := t.TempDir()
	root := cli.Commands()
	if err := write(root, dir); err != nil {
		t.Fatal(err)
	}
	pages := 0
	var check func(*cobra.Command)
	check = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			if !sub.IsAvailableCommand() || sub.IsAdditionalHelpTopicCommand() {
				continue
			}
			pages++
			name := strings.ReplaceAll(sub.CommandPath(), " ", "-")
			page, err := os.ReadFile(filepath.Join(dir, name+".1"))
			if err != nil {
				t.Error(err)
				continue
			}
			text := strings.ReplaceAll(string(page), `\-`, "-")
			if !regexp.MustCompile(`(?m)^\.SH NAME\n` + regexp.QuoteMeta(name) + ` - \S`).MatchString(text) {
				t.Errorf("the page of %s begins\n%.300s", name, text)
			}
			for _, section := range []string{"SYNOPSIS", "SEE ALSO"} {
				if !strings.Contains(text, "\n.SH "+section+"\n") {
					t.Errorf("the page of %s has no section %s", name, section)
				}
			}
			check(sub)
		}
	}
	check(root)
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if pages < 100 || len(files) != pages {
		t.Errorf("%d pages of %d commands", len(files), pages)
	}
}
