package recipe

import "strings"

// toolVariables are the variables of the server that tools may read; those that
// end with "*" stand for all that begin so. Case does not count, as it does not for
// proxies and npm.
var toolVariables = []string{
	"PATH", "HOME", "USER", "LOGNAME", "TMPDIR",
	"http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS",
	"APT_CONFIG", "npm_config_*",
}

// toolEnv returns what the tools that make images get of the server's environment:
// where programs are and how the network is reached. The rest may hold the
// server's secrets, and packages bring scripts that could read them.
func toolEnv(environ []string) []string {
	kept := []string{} // nil would mean all
	for _, variable := range environ {
		name, _, _ := strings.Cut(variable, "=")
		if isToolVariable(name) {
			kept = append(kept, variable)
		}
	}
	return kept
}

func isToolVariable(name string) bool {
	for _, known := range toolVariables {
		begin, open := strings.CutSuffix(known, "*")
		if strings.EqualFold(name, known) || open && len(name) > len(begin) && strings.EqualFold(name[:len(begin)], begin) {
			return true
		}
	}
	return false
}
