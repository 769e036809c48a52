package front

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
)

// maxDescription bounds an answer with addresses.
const maxDescription = 8 << 20

// outerKey is the key of the address by which a request came, in its context.
type outerKey struct{}

// newDevTools returns a proxy to the DevTools of Chromium, whose answers have the addresses by which the
// caller came.
func newDevTools(address string) http.Handler {
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.URL.RawPath = "http", address, ""
			r.Out.URL.Path = strings.TrimPrefix(r.In.URL.Path, "/cdp")
			r.Out.Host = "localhost" // Chromium answers to no other name, and uses it in the addresses
			r.Out.Header.Del("Accept-Encoding")
		},
		ModifyResponse: readdress,
		ErrorHandler:   func(w http.ResponseWriter, _ *http.Request, _ error) { starting(w, "browser") },
		FlushInterval:  -1,
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme := "ws"
		if r.Header.Get("X-Forwarded-Proto") == "https" {
			scheme = "wss"
		}
		outer := [2]string{scheme, r.Host + r.Header.Get("X-Forwarded-Prefix") + "/cdp/"}
		proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), outerKey{}, outer)))
	})
}

// readdress replaces the addresses in an answer.
func readdress(resp *http.Response) error {
	outer, ok := resp.Request.Context().Value(outerKey{}).([2]string)
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); !ok || kind != "application/json" {
		return nil
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxDescription+1))
	if err != nil {
		return err
	}
	if len(data) > maxDescription {
		return fmt.Errorf("the browser's answer has more than %d bytes", maxDescription)
	}
	data = bytes.ReplaceAll(data, []byte("ws://localhost/"), []byte(outer[0]+"://"+outer[1]))
	data = bytes.ReplaceAll(data, []byte("ws=localhost/"), []byte(outer[0]+"="+outer[1]))
	resp.Body = io.NopCloser(bytes.NewReader(data))
	resp.ContentLength = int64(len(data))
	resp.Header.Set("Content-Length", strconv.Itoa(len(data)))
	return nil
}
