// Command euid prints its effective user id. It stands in test root filesystems
// with the set-user-id bit, which the shell and its tools would give up.
package main

import "os"

func main() { println(os.Geteuid()) }
