package client

import "github.com/modbox/modbox/client/wire"

// Runtime is a built-in image with a description for people.
type Runtime = wire.Runtime

// Requirements are the least resources for a useful sandbox of a runtime; "" does not matter.
type Requirements = wire.Requirements

// Runtimes lists the built-in images that sandboxes can be made from, by name. The first use of an
// image builds it.
func (c *Images) Runtimes() *List[Runtime] { return newList[Runtime](c.transport, "/v1/runtimes", nil) }
