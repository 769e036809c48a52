// Command euid prints its effective user ID. It is part of test root filesystems with the
// set-user-id bit, which the shell and its tools would drop.
package main

import (
	"fmt"
	"os"
)

func main() { fmt.Println(os.Geteuid()) }
