// Command agent is an example of package sandbox: the ten steps of an agent that analyses data.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/client/sandbox"
)

const sales = "month,amount\n1,10\n2,20\n3,12\n"

const load = `
import csv
rows = list(csv.DictReader(open("/tmp/work/sales.csv")))
amounts = [int(row["amount"]) for row in rows]
sum(amounts)`

const plot = `
import matplotlib.pyplot as plt
plt.plot(amounts)
plt.show()`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	image := "modbox/code-exec" // give an image with ipykernel and matplotlib for the plot
	if len(os.Args) > 1 {
		image = os.Args[1]
	}
	if err := run(ctx, os.Stdout, sandbox.Options{Image: image}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, o sandbox.Options) (err error) {
	sbx, err := sandbox.Create(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sbx.Delete(context.WithoutCancel(ctx))) }()

	if err := sbx.Files.Write(ctx, "/tmp/work/sales.csv", []byte(sales)); err != nil {
		return err
	}
	if err := analyse(ctx, out, sbx); err != nil {
		return err
	}

	// A command's output as it comes.
	cmd := sbx.Shell("for i in 1 2 3; do echo line $i; done")
	cmd.Stdout = out
	res, err := cmd.Run(ctx)
	if err == nil {
		err = res.Err()
	}
	if err != nil {
		return err
	}
	if err := serve(ctx, out, sbx); err != nil {
		return err
	}

	// The sandbox lives half an hour from now, over a pause.
	if err := sbx.SetTimeout(ctx, 30*time.Minute); err != nil {
		return err
	}
	if err := errors.Join(sbx.Pause(ctx), sbx.Resume(ctx)); err != nil {
		return err
	}
	file, err := sbx.Files.Read(ctx, "/tmp/work/sales.csv")
	fmt.Fprintf(out, "after the pause: %d bytes\n", len(file))
	return err
}

// analyse runs code that keeps its state.
func analyse(ctx context.Context, out io.Writer, sbx *sandbox.Sandbox) error {
	res, err := sbx.RunCode(ctx, load)
	if errors.Is(err, client.Unsupported) {
		fmt.Fprintln(out, "this image has no interpreter that keeps its state:", err)
		return nil
	}
	if err == nil {
		err = res.Err()
	}
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "sum", res.Text())
	if res, err = sbx.RunCode(ctx, plot); err != nil {
		return err
	}
	if err := res.Err(); err != nil {
		fmt.Fprintln(out, "no plot:", err)
		return nil
	}
	fmt.Fprintf(out, "plot: %d bytes of PNG\n", len(res.PNG()))
	return nil
}

// serve starts an HTTP server in the sandbox, gets a file from its URL, and stops it.
func serve(ctx context.Context, out io.Writer, sbx *sandbox.Sandbox) error {
	server, err := sbx.Start(ctx, "exec python3 -m http.server 3000 -d /tmp/work")
	if err != nil {
		return err
	}
	listening := "until (: < /dev/tcp/127.0.0.1/3000) 2> /dev/null; do sleep 0.1; done"
	if _, err := sbx.Command("bash", "-c", listening).Run(ctx); err != nil {
		return err
	}
	url, err := sbx.URL(ctx, 3000)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/sales.csv", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: %d bytes\n", resp.Status, len(page))
	if err := server.Stop(ctx); err != nil {
		return err
	}
	_, err = server.Wait(ctx)
	return err
}
