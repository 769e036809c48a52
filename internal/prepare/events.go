package prepare

import (
	"fmt"
	"strconv"
	"time"

	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/sandbox"
)

// imageEventsMax bounds the events of one sandbox about its image.
const imageEventsMax = 32

// Events returns a progress function that records an event of a sandbox for each phase in the making
// of its image.
func Events(id sandbox.ID, image string, record func(sandbox.Event)) func(phase.Event) {
	var last phase.Phase
	count := 0
	return func(e phase.Event) { // one call at a time
		if e.Phase == last || count == imageEventsMax {
			return
		}
		last = e.Phase
		count++
		data := map[string]string{"image": image, "phase": string(e.Phase), "detail": sandbox.OneLine(e.Message)}
		if e.Total > 0 {
			data["total"] = strconv.FormatInt(e.Total, 10)
		}
		record(sandbox.Event{
			Sandbox: id, Time: time.Now().UTC(), Type: sandbox.EventImageBuilding,
			Message: sandbox.OneLine(fmt.Sprintf("its image is being made: %s: %s", e.Phase, e.Message)), Data: data,
		})
	}
}
