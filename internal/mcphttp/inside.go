package mcphttp

import (
	"context"
	"io"
	"net/http"
	"sync"
)

// inside sends requests to a handler of this process.
type inside struct {
	handler http.Handler
	// remote returns the address of the client on whose behalf the requests are.
	remote func() string
}

// RoundTrip implements [http.RoundTripper].
func (t *inside) RoundTrip(req *http.Request) (*http.Response, error) {
	// The values of the caller's context belong to another request, which may be over.
	ctx, cancel := context.WithCancel(context.Background())
	r := req.Clone(ctx)
	r.RemoteAddr, r.Host, r.RequestURI = t.remote(), req.URL.Host, req.URL.RequestURI()
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/2.0", 2, 0 // a request ends without a connection
	if r.Body == nil {
		r.Body = http.NoBody
	}
	body, out := io.Pipe()
	w := &answer{header: http.Header{}, body: out, begun: make(chan struct{})}
	stop := context.AfterFunc(req.Context(), func() {
		cancel()
		_ = out.CloseWithError(req.Context().Err()) // never fails
	})
	go func() {
		defer cancel()
		defer stop()
		defer r.Body.Close() // a reader of this process
		w.end(serve(t.handler, w, r))
	}()
	select {
	case <-w.begun:
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	return &http.Response{
		Status: http.StatusText(w.status), StatusCode: w.status, Proto: r.Proto, ProtoMajor: r.ProtoMajor, ProtoMinor: r.ProtoMinor,
		Header: w.sent, Body: &answerBody{body, cancel}, ContentLength: -1, Request: req,
	}, nil
}

// serve runs the handler, and returns an error if the handler has cut its answer off.
func serve(h http.Handler, w http.ResponseWriter, r *http.Request) (err error) {
	defer func() {
		if v := recover(); v == http.ErrAbortHandler {
			err = io.ErrUnexpectedEOF
		} else if v != nil {
			panic(v)
		}
	}()
	h.ServeHTTP(w, r)
	return nil
}

// answer is the answer of a handler, whose body is read while it is written.
type answer struct {
	header http.Header
	body   *io.PipeWriter
	once   sync.Once
	status int           // written before begun is closed
	sent   http.Header   // written before begun is closed
	begun  chan struct{} // closed when status and sent are known
}

// Header implements [http.ResponseWriter].
func (w *answer) Header() http.Header { return w.header }

// WriteHeader implements [http.ResponseWriter].
func (w *answer) WriteHeader(status int) {
	if status < http.StatusOK {
		return
	}
	w.once.Do(func() {
		w.status, w.sent = status, w.header.Clone()
		close(w.begun)
	})
}

// Write implements [http.ResponseWriter].
func (w *answer) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}

// Flush implements [http.Flusher]: all that is written is on its way.
func (w *answer) Flush() { w.WriteHeader(http.StatusOK) }

// end ends the answer, with an error if it is not complete.
func (w *answer) end(err error) {
	if err != nil {
		w.WriteHeader(http.StatusBadGateway) // unless it has begun
	}
	w.WriteHeader(http.StatusOK)
	_ = w.body.CloseWithError(err) // never fails; nil is io.EOF
}

// answerBody is the body of an answer. Closing it ends the request.
type answerBody struct {
	*io.PipeReader
	cancel context.CancelFunc
}

// Close implements [io.Closer].
func (b *answerBody) Close() error {
	b.cancel()
	return b.PipeReader.Close()
}
