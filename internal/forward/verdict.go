package forward

import (
	"bytes"
	"net/http"
)

// maxVerdict bounds the refusal of the active server that a client gets.
const maxVerdict = 64 << 10

// Permitted returns a handler that has next answer the requests which the active server answers with 200: only that knows who may ask. Its
// own answers are dropped, its refusals are passed on.
func (f *Forwarder) Permitted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := &verdict{header: http.Header{}}
		f.ServeHTTP(v, r)
		if v.status == http.StatusOK {
			next.ServeHTTP(w, r)
			return
		}
		for name, values := range v.header {
			w.Header()[name] = values
		}
		w.WriteHeader(v.status)
		_, _ = w.Write(v.body.Bytes()) // an error is the client's
	})
}

// verdict takes the answer of the active server.
type verdict struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements [http.ResponseWriter].
func (v *verdict) Header() http.Header { return v.header }

// WriteHeader implements [http.ResponseWriter].
func (v *verdict) WriteHeader(status int) {
	if v.status == 0 && status >= http.StatusOK {
		v.status = status
	}
}

// Write implements [http.ResponseWriter].
func (v *verdict) Write(p []byte) (int, error) {
	v.WriteHeader(http.StatusOK)
	if v.status != http.StatusOK && v.body.Len()+len(p) <= maxVerdict {
		v.body.Write(p)
	}
	return len(p), nil
}
