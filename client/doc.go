// Package client has every call of the /v1 API of Modbox, typed. Most programs begin with package
// [github.com/modbox/modbox/client/sandbox], whose object is a sandbox with its commands, files and
// code.
//
//	c, err := client.New("http://127.0.0.1:7070", os.Getenv("MODBOX_API_TOKEN"))
//	sb, err := c.Sandboxes.Create(ctx, client.CreateOptions{Image: "modbox/code-exec", TTL: 10 * time.Minute, WaitUpTo: time.Minute})
//	defer c.Sandboxes.Delete(context.WithoutCancel(ctx), sb.ID)
//	res, err := c.Sandboxes.Exec(ctx, sb.ID, client.Command{Argv: []string{"python3", "-c", "print(1+1)"}})
//	fmt.Print(res.Stdout)
//
// A [Client] has a service for each noun of the API: [Sandboxes], [Snapshots], [Images] and so on, with
// the names that the SDKs for TypeScript and Python have. A sandbox is named by its id or by its name.
// All methods are safe for concurrent use and end with
// their context.
//
// # Errors
//
// An error answer of the server is an [*Error] with a [Code]; compare with errors.Is, as in
// errors.Is(err, client.NotFound), or with [IsCode]. Errors of the connection are other errors.
//
// # Retries
//
// The client repeats calls that may be repeated without harm (reads, deletes, creates, which carry
// an idempotency key) a few times, with growing pauses, when the connection fails or the server
// answers that it is unavailable. It never repeats commands, uploads and moves.
package client
