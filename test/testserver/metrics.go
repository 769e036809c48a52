package testserver

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Metric returns the value of a series of the server's metrics, whose name is as in the text, with its labels.
func (s *Server) Metric(name string) float64 {
	s.t.Helper()
	res, err := http.Get(s.URL + "/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	res.Body.Close()
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(string(body)) {
		value, ok := strings.CutPrefix(line, name+" ")
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil {
			s.t.Fatal(err)
		}
		return n
	}
	s.t.Fatalf("no %s in the metrics:\n%s", name, body)
	return 0
}

// AwaitMetric waits until the value of a series is at least n.
func (s *Server) AwaitMetric(name string, n float64) {
	s.t.Helper()
	for deadline := time.Now().Add(timeLimit); s.Metric(name) < n; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("%s is %v after %v, want %v", name, s.Metric(name), timeLimit, n)
		}
	}
}
