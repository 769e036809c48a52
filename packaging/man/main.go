// Man writes the manual pages of all commands below modbox; packaging/modbox.1 is the page of modbox.
// It is part of a release: scripts/release.sh calls it.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/modbox/modbox/internal/cli"
)

func main() {
	dir := flag.String("o", "", "the directory of the pages, which exists")
	flag.Parse()
	if err := write(cli.Commands(), *dir); err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(1)
	}
}

// write writes modbox-COMMAND.1 for each command that is not hidden. The date of the pages is
// SOURCE_DATE_EPOCH, if it is set.
func write(root *cobra.Command, dir string) error {
	root.DisableAutoGenTag = true
	header := &doc.GenManHeader{Section: "1", Source: "Modbox", Manual: "User Commands"}
	if err := doc.GenManTree(root, header, dir); err != nil {
		return err
	}
	return os.Remove(filepath.Join(dir, root.Name()+".1"))
}
