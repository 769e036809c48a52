package envd

import (
	"net/http"
	"strconv"
	"time"
)

// keepalive is the time of silence after which a stream sends a sign of life.
type keepalive struct{ interval time.Duration }

// keepaliveOf reads the header of a call.
func keepaliveOf(h http.Header) keepalive {
	const def, most = 90, 3600 // seconds
	n, err := strconv.Atoi(h.Get("Keepalive-Ping-Interval"))
	if err != nil || n < 1 || n > most {
		n = def
	}
	return keepalive{time.Duration(n) * time.Second}
}

func (k keepalive) begin() *time.Timer { return time.NewTimer(k.interval) }
