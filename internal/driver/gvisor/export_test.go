package gvisor

// Installation is the name of the control group of the driver with that RunDir.
func Installation(runDir string) string {
	return (&Driver{cfg: Config{RunDir: runDir}}).installation()
}
