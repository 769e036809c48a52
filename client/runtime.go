package client

import "github.com/modbox/modbox/client/wire"

// Runtime is a built-in image with what people want to know before they choose it.
type Runtime = wire.Runtime

// Requirements are what a sandbox of a runtime needs at least; "" does not matter.
type Requirements = wire.Requirements

// Runtimes lists the built-in images that sandboxes can be made from, by name. One
// that is not built is built by its first use.
func (c *Client) Runtimes() *List[Runtime] { return newList[Runtime](c, "/v1/runtimes", nil) }
