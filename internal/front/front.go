package front

import (
	"context"
	"crypto/subtle"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Config says which programs are in the sandbox.
type Config struct {
	// CDP is the address of Chromium's DevTools; "" without a browser.
	CDP string
	// VNC is the path of the Unix socket of the VNC server; "" without a screen.
	VNC string
	// Files is the directory with the pages: terminal, and vnc if there is a screen.
	Files string
	// Key, unless "", is needed for terminals and MCP, as a bearer token or as a password.
	Key string
	// Shell is the command of a terminal.
	Shell []string
	// Version is the version of the MCP servers.
	Version string
	Log     *slog.Logger
}

// New returns the handler of all requests.
func New(cfg Config) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/{$}", &home{cfg: cfg})
	terminals := newTerminals(cfg.Shell, cfg.Log)
	mux.Handle("/terminal/", page(cfg.keyed, http.StripPrefix("/terminal", http.FileServer(http.Dir(cfg.Files+"/terminal")))))
	mux.Handle("/terminal/socket", outside(cfg.keyed(terminals)))
	mux.Handle("/mcp/shell", outside(cfg.keyed(shellServer(cfg.Version))))
	if cfg.CDP != "" {
		mux.Handle("/cdp/", outside(newDevTools(cfg.CDP)))
		mux.Handle("/mcp/browser", outside(cfg.keyed(browserServer(cfg.Version, cfg.CDP))))
	}
	if cfg.VNC != "" {
		viewer := http.StripPrefix("/vnc", http.FileServer(http.Dir(cfg.Files+"/vnc")))
		mux.HandleFunc("/vnc/", func(w http.ResponseWriter, r *http.Request) {
			// Without a domain for sandboxes, pages have no origin of their own.
			w.Header().Set("Access-Control-Allow-Origin", "*")
			viewer.ServeHTTP(w, r)
		})
		mux.Handle("/vnc/websockify", outside(&screen{socket: cfg.VNC}))
	}
	return mux
}

// page serves the page of a directory by guard, and the other files, which are no secret, as they are.
func page(guard func(http.Handler) http.Handler, files http.Handler) http.Handler {
	guarded := guard(files)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/") {
			guarded.ServeHTTP(w, r)
			return
		}
		files.ServeHTTP(w, r)
	})
}

// outside serves only requests that came to the sandbox's URL. Pages in the sandbox's browser cannot
// set the header: their WebSockets have no such headers, and their requests would need a permission
// that nothing here gives.
func outside(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Forwarded-Proto") == "" {
			http.Error(w, "only the sandbox's URL leads here", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// keyed serves only requests with the key, if there is a key. Browsers ask people for it.
func (c Config) keyed(next http.Handler) http.Handler {
	if c.Key == "" {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, given, ok := r.BasicAuth()
		if !ok {
			given, _ = strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		}
		if subtle.ConstantTimeCompare([]byte(given), []byte(c.Key)) != 1 {
			w.Header().Set("WWW-Authenticate", `Basic realm="The password is the sandbox's SANDBOX_API_KEY", charset="UTF-8"`)
			http.Error(w, "the sandbox's SANDBOX_API_KEY is needed, as a bearer token or as the password", http.StatusUnauthorized)
			return
		}
		// A browser sends a password that it knows also from pages of other sites.
		if !sameOrigin(r) {
			http.Error(w, "pages of other sites cannot use the sandbox", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// sameOrigin reports whether a request is not from a page of another site. Pages below /s/LABEL/ have
// the origin "null".
func sameOrigin(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" || origin == "null" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && strings.EqualFold(u.Host, r.Host)
}

// home answers whether the sandbox is ready.
type home struct{ cfg Config }

// probeTime bounds the probe of a program.
const probeTime = 5 * time.Second

func (h *home) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), probeTime)
	defer cancel()
	if name := h.missing(ctx); name != "" {
		starting(w, name)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	links := `<a href="terminal/">Terminal</a>`
	if h.cfg.VNC != "" {
		links = `<a href="vnc/">Desktop</a> · ` + links
	}
	_, _ = w.Write([]byte(`<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>Sandbox</title><p>` + links + "</p></html>\n")) // the client may be gone
}

// missing returns which program does not answer; "" if all do.
func (h *home) missing(ctx context.Context) string {
	var d net.Dialer
	if h.cfg.VNC != "" {
		conn, err := d.DialContext(ctx, "unix", h.cfg.VNC)
		if err != nil {
			return "screen"
		}
		_ = conn.Close() // nothing was sent
	}
	if h.cfg.CDP == "" {
		return ""
	}
	if _, err := (&browser{address: h.cfg.CDP}).tabs(ctx); err != nil {
		return "browser"
	}
	return ""
}

// starting answers that a program is being started.
func starting(w http.ResponseWriter, name string) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, "the "+name+" is being started", http.StatusServiceUnavailable)
}
