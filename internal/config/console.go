package config

import (
	"net"
	"net/url"
	"strings"
)

// Console configures the web console.
type Console struct {
	URL string `yaml:"url" doc:"URL of the web console, such as https://console.example.com: its host must lead to this server, and must be another than the host of public_url and any host beneath domain (docs/console.md). off: no console. auto: http://console.localhost with the port of public_url where that is http on a loopback address, else off."`
}

// localConsole is the host of the console on a server that is reached at a loopback address. Browsers
// resolve it to their own machine, as all names beneath localhost.
const localConsole = "console.localhost"

// At returns the URL of the console of a server that is reached at a URL; "" when there is none.
func (c *Console) At(publicURL string) string {
	switch c.URL {
	case "off":
		return ""
	case "auto":
		u, err := url.Parse(publicURL)
		if err != nil || u.Scheme != "http" || !isLocal(u.Hostname()) {
			return ""
		}
		host := localConsole
		if port := u.Port(); port != "" {
			host = net.JoinHostPort(host, port)
		}
		return "http://" + host
	}
	return strings.TrimRight(c.URL, "/")
}

// isLocal reports whether a host, without a port, is this machine for its own programs.
func isLocal(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || ip != nil && ip.IsLoopback()
}

func (c *Console) validate(bad func(name, format string, args ...any), publicURL, domain string) {
	if c.URL == "auto" || c.URL == "off" {
		return
	}
	u, err := url.Parse(c.URL)
	if err != nil || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		bad("console.url", "%q is not auto, off, or a URL with a host and nothing after it", c.URL)
		return
	}
	host := strings.ToLower(u.Hostname())
	if u.Scheme != "https" && (u.Scheme != "http" || !isLocal(host)) {
		bad("console.url", "%q must be https: over http browsers keep the console's cookie only on their own machine", c.URL)
	}
	if net.ParseIP(host) != nil || host == "localhost" {
		bad("console.url", "%q must have a host name that nothing else uses, such as http://%s: cookies are sent to every port of a host", c.URL, localConsole)
	}
	if server, err := url.Parse(publicURL); err == nil && strings.EqualFold(server.Hostname(), host) {
		bad("console.url", "%q has the host of public_url: pages of sandboxes and other clients of that host must not share it with the console", c.URL)
	}
	if domain = strings.ToLower(domain); domain != "" && (host == domain || strings.HasSuffix(host, "."+domain)) {
		bad("console.url", "%q is beneath domain, where the pages of sandboxes are", c.URL)
	}
}
