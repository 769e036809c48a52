// Command go is an example of the Go client: it makes a sandbox, runs a program
// in it, and destroys it.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/modbox/modbox/client"
)

const program = `
limit = int(open("limit.txt").read())
primes = [n for n in range(2, limit) if all(n % d for d in range(2, n))]
print(primes)
open("count.txt", "w").write(str(len(primes)))
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) (err error) {
	c, err := client.New(os.Getenv("MODBOX_URL"), os.Getenv("MODBOX_API_TOKEN"))
	if err != nil {
		return err
	}
	sb, err := c.Sandboxes.Create(ctx, client.CreateOptions{
		Image:     "modbox/code-exec",
		TTL:       5 * time.Minute, // it ends by itself, whatever happens to us
		Resources: client.Resources{Memory: "512Mi", CPU: "1", Disk: "1Gi"},
		WaitUpTo:  time.Minute,
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "sandbox", sb.State)
	defer func() {
		ended, destroyErr := c.Sandboxes.Delete(context.WithoutCancel(ctx), sb.ID)
		if err == nil && destroyErr == nil {
			fmt.Fprintln(out, "sandbox", ended.State)
		} else if err == nil {
			err = destroyErr
		}
	}()

	_, err = c.Sandboxes.Files.Write(ctx, sb.ID, "/tmp/work/limit.txt", strings.NewReader("30"), client.WriteOptions{Parents: true})
	if err != nil {
		return err
	}
	res, err := c.Sandboxes.Exec(ctx, sb.ID, client.Command{
		Argv: []string{"python3", "-c", program}, Cwd: "/tmp/work", Timeout: 20 * time.Second,
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "exit code %d\n%s", res.ExitCode, res.Stdout)

	stream, err := c.Sandboxes.ExecStream(ctx, sb.ID, client.Command{Shell: "for i in 1 2 3; do echo line $i; done"})
	if err != nil {
		return err
	}
	defer stream.Close()
	if _, err := stream.Copy(out, os.Stderr); err != nil {
		return err
	}

	file, err := c.Sandboxes.Files.Read(ctx, sb.ID, "/tmp/work/count.txt")
	if err != nil {
		return err
	}
	defer file.Close()
	count, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "count %s\n", count)
	return nil
}
