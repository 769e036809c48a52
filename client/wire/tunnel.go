package wire

// TunnelMessage is a text message of a connection to a port.
type TunnelMessage struct {
	Type string `json:"type"`
}

const (
	// TunnelEnd is the type of the message that no more bytes come from its sender.
	TunnelEnd = "eof"
	// TunnelEOF is that message.
	TunnelEOF = `{"type":"` + TunnelEnd + `"}`
)
