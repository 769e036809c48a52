package recipe

import "strings"

// toolVariables are the variables of the server that tools may read; names that end with "*" are
// prefixes. Case does not matter, as it does not for proxies and npm.
var toolVariables = []string{
	"PATH", "HOME", "USER", "LOGNAME", "TMPDIR",
	"http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS",
	"APT_CONFIG", "npm_config_*", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST",
}

// toolEnv returns the part of the server's environment for the tools that make images: paths of
// programs and network settings. The rest may contain the server's secrets, which scripts in
// packages could read.
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
