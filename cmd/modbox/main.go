package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// version is set by the build.
var version = "unknown"

func main() {
	mustKeepDescriptors()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := newApp().execute(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}
