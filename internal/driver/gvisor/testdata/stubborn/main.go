// Command stubborn is a hostile agent. As built it takes every connection that is handed over, and neither
// answers on it nor closes it. The linker can make it take none.
package main

import (
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// deaf is whether the agent takes no connections.
var deaf string

func main() {
	conn, err := net.FileConn(os.Stdin)
	if err != nil {
		panic(err)
	}
	if deaf != "" {
		time.Sleep(time.Hour)
	}
	for {
		if _, _, _, _, err := conn.(*net.UnixConn).ReadMsgUnix(make([]byte, 1), make([]byte, unix.CmsgSpace(4))); err != nil {
			panic(err)
		}
	}
}
