// Command agent has the ten steps of the life of a sandbox, with the image modbox/data.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/modbox/modbox/client/sandbox"
)

func main() {
	defer report()
	ctx := context.Background()
	sbx := must(sandbox.Create(ctx, sandbox.Options{Image: "modbox/data"}))
	defer sbx.Delete(ctx)

	try(sbx.Files.Write(ctx, "sales.csv", []byte("month,amount\n1,10\n2,40\n3,30\n")))
	must(sbx.RunCode(ctx, "import pandas as pd; sales = pd.read_csv('sales.csv')"))
	fmt.Println(must(sbx.RunCode(ctx, "int(sales.amount.sum())")).Text()) // the variable is still there
	fmt.Println(must(sbx.RunCode(ctx, "sales.plot('month')")).PNG() != nil)
	lines := sbx.Shell("for i in 1 2 3; do echo line $i; sleep 0.1; done")
	lines.Stdout = os.Stdout // as it comes
	must(lines.Run(ctx))
	server := must(sbx.Start(ctx, "python3 -m http.server 3000"))
	fmt.Println(must(sbx.URL(ctx, 3000)))
	try(server.Kill(ctx))
	try(sbx.SetTimeout(ctx, time.Hour)) // from now, instead of 15 minutes after create
	try(sbx.Pause(ctx))                 // keeps the memory; the next call resumes it
}

// must returns the value of a call that succeeded.
func must[T any](value T, err error) T {
	try(err)
	return value
}

// try ends the program if a call failed, after its deferred calls.
func try(err error) {
	if err != nil {
		panic(err)
	}
}

// report prints the error of a call that failed.
func report() {
	if err := recover(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
