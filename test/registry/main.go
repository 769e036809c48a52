// Command registry is a container registry on loopback for the tests of the SDKs. It accepts the
// user in the first argument with the password in the second, prints its address on a line, and
// forgets everything when it ends.
package main

import (
	"crypto/subtle"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: registry USER PASSWORD")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatalf("registry: %v", err)
	}
	fmt.Println(listener.Addr())
	srv := &http.Server{
		Handler:           signedIn(os.Args[1], os.Args[2], registry.New(registry.Logger(log.New(io.Discard, "", 0)))),
		ReadHeaderTimeout: time.Minute,
	}
	log.Fatalf("registry: %v", srv.Serve(listener))
}

// signedIn passes requests with the user's name and password on to next.
func signedIn(user, password string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, p, ok := r.BasicAuth()
		if !ok || u != user || subtle.ConstantTimeCompare([]byte(p), []byte(password)) != 1 {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}
