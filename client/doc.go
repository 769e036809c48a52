// Package client is the Go SDK of Modbox: every call of the /v1 API, typed.
//
//	c, err := client.New("http://127.0.0.1:7070", os.Getenv("MODBOX_API_TOKEN"))
//	sb, err := c.Create(ctx, client.CreateOptions{Image: "modbox/code-exec", TTL: 10 * time.Minute, WaitUpTo: time.Minute})
//	defer c.Delete(context.WithoutCancel(ctx), sb.ID)
//	res, err := c.Exec(ctx, sb.ID, client.Command{Argv: []string{"python3", "-c", "print(1+1)"}})
//	fmt.Print(res.Stdout)
//
// A sandbox is named by its id or by its name. All methods are safe for
// concurrent use and end with their context.
//
// # Errors
//
// What the server refuses is an [*Error] with a [Code]; compare with [IsCode].
// What never reached the server, or never came back, is another error.
//
// # Retries
//
// Calls that may be repeated without harm (reads, deletes, creates, which carry
// an idempotency key) are repeated a few times, with growing pauses, when the
// connection fails or the server answers that it is unavailable. Commands,
// uploads and moves are never repeated.
package client
