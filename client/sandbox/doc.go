// Package sandbox is the object that most programs use: a sandbox that runs, with its commands,
// files, code and ports as methods. It is built on package client, which has every call of the API
// with its records.
//
//	sbx, err := sandbox.Create(ctx, sandbox.Options{Image: "modbox/data"})
//	if err != nil {
//		return err
//	}
//	defer sbx.Delete(context.WithoutCancel(ctx))
//
//	res, err := sbx.Run(ctx, "ls -la | wc -l")
//	out, err := sbx.RunCode(ctx, "import math; math.pi")
//	fmt.Println(res.Stdout, out.Text())
//
// [Create] waits until the sandbox runs. Unless Options.TTL says otherwise the sandbox is destroyed
// after 15 minutes; [Sandbox.SetTimeout] gives it another time, counted from the call.
//
// The functions of the package use the server of MODBOX_URL with the token of MODBOX_API_TOKEN.
// [On] has the same functions for another [client.Client].
//
// All methods of a Sandbox are safe for concurrent use and end with their context.
//
// # Errors
//
// Compare an error of the server with a code: errors.Is(err, client.FileNotFound), and use
// errors.As with a *[client.Error] for its details. [*FailedError] is the end of a sandbox that did
// not begin to run, [*CommandError] a command that failed, for callers that ask with [Result.Err],
// and [*CodeError] an error of code, see [CodeResult.Err].
package sandbox
