package sandbox

import "github.com/modbox/modbox/client"

// Desktop returns the calls that use the sandbox's screen, mouse and keyboard. The image modbox/sandbox
// has a desktop.
func (s *Sandbox) Desktop() *client.Desktop { return s.client.Sandboxes.Desktop(s.ID) }
