// Command modbox-front is the HTTP server inside sandboxes of modbox/sandbox and modbox/sandbox-lite.
// See package front.
package main

import (
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/front"
)

// keyVariable is the environment variable with the sandbox's own key.
const keyVariable = "SANDBOX_API_KEY"

func main() {
	listen := flag.String("listen", ":8080", "TCP address to answer on")
	cdp := flag.String("cdp", "", "address of Chromium's DevTools; none without a browser")
	vnc := flag.String("vnc", "", "Unix socket of the VNC server; none without a screen")
	files := flag.String("files", "/usr/share/modbox", "directory of the pages")
	shell := flag.String("shell", "/bin/bash", "command of a terminal")
	flag.Parse()
	cfg := front.Config{
		CDP: *cdp, VNC: *vnc, Files: *files, Key: os.Getenv(keyVariable), Shell: strings.Fields(*shell),
		Version: "1", Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	if err := serve(*listen, front.New(cfg)); err != nil {
		fmt.Fprintln(os.Stderr, "modbox-front:", err)
		os.Exit(1)
	}
}

func serve(address string, h http.Handler) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	defer l.Close()
	s := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	return s.Serve(l)
}
