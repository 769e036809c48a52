package agent

// Tunnels returns the number of open tunnels.
func (a *Agent) Tunnels() int { return len(a.tunnels) }
