// Command modbox is all of Modbox: the server ("modbox server") and the command
// line that talks to it. docs/cli.md describes it for users.
package main

import (
	"os"

	"github.com/modbox/modbox/internal/cli"
)

// The build sets them.
var (
	version = "unknown"
	commit  = "unknown"
)

func main() { os.Exit(cli.Main(version, commit)) }
