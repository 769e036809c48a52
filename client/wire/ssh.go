package wire

// SSH describes the SSH server.
type SSH struct {
	Enabled  bool         `json:"enabled" doc:"Whether the server serves SSH clients."`
	Host     string       `json:"host" doc:"The host for SSH clients; empty without SSH." example:"sandbox.example.com"`
	Port     int          `json:"port" doc:"The port for SSH clients; 0 without SSH." example:"2222"`
	HostKeys []SSHHostKey `json:"host_keys" nullable:"false" doc:"The keys by which clients recognise the server."`
}

// SSHHostKey is a host key of the SSH server.
type SSHHostKey struct {
	PublicKey   string `json:"public_key" doc:"Type and key, as in known_hosts." example:"ssh-ed25519 AAAAC3Nza..."`
	Fingerprint string `json:"fingerprint" doc:"The fingerprint that ssh shows." example:"SHA256:47DEQpj8HBSa..."`
}
