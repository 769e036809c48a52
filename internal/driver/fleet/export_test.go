package fleet

import "time"

// SetReportPause changes the time between two looks at the records of other servers, for drivers that are made later.
func SetReportPause(d time.Duration) { reportPause = d }
