package api

import (
	"net/http"

	"github.com/modbox/modbox/internal/guest"
)

// resumedHeader is in the answer to a call that resumed its sandbox, and
// memoryLostHeader beside it when the sandbox was started anew with that.
const (
	resumedHeader    = "Modbox-Auto-Resumed"
	memoryLostHeader = "Modbox-Memory-Lost"
)

// noteWakes adds resumedHeader to the answers of next where it applies.
func noteWakes(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, wakes := guest.NoteWakes(r.Context())
		next.ServeHTTP(&wakesWriter{ResponseWriter: w, wakes: wakes}, r.WithContext(ctx))
	})
}

type wakesWriter struct {
	http.ResponseWriter
	wakes *guest.Wakes
}

func (w *wakesWriter) WriteHeader(status int) {
	w.note()
	w.ResponseWriter.WriteHeader(status)
}

func (w *wakesWriter) Write(p []byte) (int, error) {
	w.note()
	return w.ResponseWriter.Write(p)
}

// note is too late, and does nothing, once the answer has begun.
func (w *wakesWriter) note() {
	if w.wakes.Resumed() {
		w.Header().Set(resumedHeader, "true")
	}
	if w.wakes.MemoryLost() {
		w.Header().Set(memoryLostHeader, "true")
	}
}

// Unwrap lets http.ResponseController reach flush, hijack and deadlines.
func (w *wakesWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
