package e2b

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// gap is the time between the two measurements of the use of processors.
	gap = 200 * time.Millisecond
	// manyMax is how many sandboxes one request may measure.
	manyMax = 100
	logsMax = 1000
	// searchPages bounds the pages of logsMax events that a request reads.
	searchPages = 10
)

// metric has the use of resources by a sandbox.
type metric struct {
	Timestamp     time.Time `json:"timestamp"`
	TimestampUnix int64     `json:"timestampUnix"`
	CPUCount      int64     `json:"cpuCount"`
	CPUUsedPct    float64   `json:"cpuUsedPct"`
	MemUsed       int64     `json:"memUsed"`
	MemTotal      int64     `json:"memTotal"`
	MemCache      int64     `json:"memCache"`
	DiskUsed      int64     `json:"diskUsed"`
	DiskTotal     int64     `json:"diskTotal"`
}

// metricOf returns what a sandbox used between two measurements.
func metricOf(before, now *sandbox.Stats) metric {
	cores := (now.CPULimitMilli + 999) / 1000
	m := metric{
		Timestamp: now.Time.UTC(), TimestampUnix: now.Time.Unix(), CPUCount: cores,
		MemUsed: now.MemoryBytes, MemTotal: now.MemoryLimit, DiskUsed: now.DiskBytes, DiskTotal: now.DiskLimit,
	}
	if spent := now.Time.Sub(before.Time); spent > 0 && cores > 0 {
		m.CPUUsedPct = max(0, float64(now.CPUNanos-before.CPUNanos)/float64(spent)/float64(cores)*100)
	}
	return m
}

// measure measures sandboxes at the same time. Those that do not run are not in the result.
func (s *sandboxes) measure(ctx context.Context, ids []sandbox.ID) (map[sandbox.ID]metric, error) {
	before := map[sandbox.ID]sandbox.Stats{}
	for _, id := range ids {
		stats, err := s.svc.Guest().Stats(ctx, caller(ctx), string(id))
		switch sandbox.CodeOf(err) {
		case "":
			before[id] = stats
		case sandbox.NotFound, sandbox.NotRunning, sandbox.Ended, sandbox.Conflict:
		default:
			return nil, err
		}
	}
	if len(before) == 0 {
		return nil, nil
	}
	timer := time.NewTimer(gap)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	out := map[sandbox.ID]metric{}
	for id, first := range before {
		if now, err := s.svc.Guest().Stats(ctx, caller(ctx), string(id)); err == nil { // otherwise it has just ended
			out[id] = metricOf(&first, &now)
		}
	}
	return out, nil
}

func (s *sandboxes) metrics(w http.ResponseWriter, r *http.Request) error {
	const never = 1 << 40
	from, err := number(r, "start", 0, 0, never)
	if err != nil {
		return err
	}
	to, err := number(r, "end", never, 0, never)
	if err != nil {
		return err
	}
	sb, err := s.found(r)
	if err != nil {
		return err
	}
	out := []metric{} // only the present is known
	if now := time.Now().Unix(); int64(from) > now || int64(to) < now-1 {
		return answer(w, http.StatusOK, out)
	}
	measured, err := s.measure(r.Context(), []sandbox.ID{sb.ID})
	if err != nil {
		return err
	}
	if m, ok := measured[sb.ID]; ok {
		out = append(out, m)
	}
	return answer(w, http.StatusOK, out)
}

func (s *sandboxes) manyMetrics(w http.ResponseWriter, r *http.Request) error {
	names := strings.Split(r.URL.Query().Get("sandbox_ids"), ",")
	if len(names) > manyMax {
		return sandbox.InvalidField("sandbox_ids", "must be at most %d", manyMax)
	}
	var ids []sandbox.ID
	for _, name := range names {
		if id, ok := ParseSandboxID(name); ok {
			ids = append(ids, id)
		}
	}
	measured, err := s.measure(r.Context(), ids)
	if err != nil {
		return err
	}
	out := struct {
		Sandboxes map[string]metric `json:"sandboxes"`
	}{map[string]metric{}}
	for id, m := range measured {
		out.Sandboxes[SandboxID(id)] = m
	}
	return answer(w, http.StatusOK, out)
}

// logLine is a line of a log in the older form, where Line is a JSON object; logEntry is the newer form.
type logLine struct {
	Timestamp time.Time `json:"timestamp"`
	Line      string    `json:"line"`
}

type logEntry struct {
	Timestamp time.Time         `json:"timestamp"`
	Level     string            `json:"level"`
	Message   string            `json:"message"`
	Fields    map[string]string `json:"fields"`
}

// events returns events of the sandbox in the request's path whose message has a text, at most as many as the
// request's limit. The events of a sandbox are its log, which remains when the sandbox has ended: a client that follows
// it asks once more then.
func (s *sandboxes) events(r *http.Request, f sandbox.EventFilter, text string) ([]sandbox.Event, error) {
	limit, err := number(r, "limit", logsMax, 0, logsMax)
	if err != nil {
		return nil, err
	}
	limit = max(1, limit)
	name := r.PathValue("id")
	id, ok := ParseSandboxID(name)
	if !ok {
		return nil, noSandbox(name)
	}
	if f.Limit = limit; text != "" {
		f.Limit = logsMax
	}
	var found []sandbox.Event
	for range searchPages {
		p, err := s.svc.Events(r.Context(), caller(r.Context()), string(id), f)
		if sandbox.CodeOf(err) == sandbox.NotFound {
			err = noSandbox(name)
		}
		if err != nil {
			return nil, err
		}
		for _, e := range p.Items {
			if !strings.Contains(e.Message, text) {
				continue
			}
			if found = append(found, e); len(found) == limit {
				return found, nil
			}
		}
		if f.Cursor = p.Next; p.Next == "" {
			return found, nil
		}
	}
	// The entries found so far would look like all there are.
	return nil, sandbox.InvalidField("search", "only %d of the %d entries that one request reads have the text, fewer than the limit of %d; set cursor to begin elsewhere, or a smaller limit", len(found), searchPages*logsMax, limit)
}

// failures are the types of events whose level is error; the level of others is info.
var failures = []sandbox.EventType{sandbox.EventFailed, sandbox.EventPauseFailed, sandbox.EventResumeFailed, sandbox.EventCheckpointFailed}

// levelOf returns the level of an event.
func levelOf(t sandbox.EventType) string {
	if slices.Contains(failures, t) {
		return levelError
	}
	return levelInfo
}

func (s *sandboxes) logs(w http.ResponseWriter, r *http.Request) error {
	start, err := number(r, "start", 0, 0, 1<<50) // milliseconds
	if err != nil {
		return err
	}
	list, err := s.events(r, sandbox.EventFilter{Since: instant(start)}, "")
	if err != nil {
		return err
	}
	out := struct {
		Logs    []logLine  `json:"logs"`
		Entries []logEntry `json:"logEntries"`
	}{[]logLine{}, []logEntry{}}
	for _, e := range list {
		entry := logEntryOf(e)
		line, err := lineOf(entry)
		if err != nil {
			return err
		}
		out.Logs, out.Entries = append(out.Logs, logLine{entry.Timestamp, line}), append(out.Entries, entry)
	}
	return answer(w, http.StatusOK, out)
}

// instant returns the time that a client gives in milliseconds; none for 0.
func instant(millis int) time.Time {
	if millis == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(millis))
}

// lineOf returns an entry as a line of the older form, with the names that E2B's command line reads.
func lineOf(e logEntry) (string, error) {
	line := maps.Clone(e.Fields)
	line["level"], line["logger"], line["message"] = e.Level, "sandbox", e.Message
	text, err := json.Marshal(line)
	return string(text), err
}

func logEntryOf(e sandbox.Event) logEntry {
	fields := e.Data
	if fields == nil {
		fields = map[string]string{}
	}
	return logEntry{e.Time.UTC(), levelOf(e.Type), e.Message, fields}
}

const (
	levelInfo  = "info"
	levelError = "error"
)

// levels are the levels of log entries, from low to high.
var levels = []string{"debug", levelInfo, "warn", levelError}

func (s *sandboxes) logsV2(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	backward := q.Get("direction") == "backward"
	if !backward && !slices.Contains([]string{"", "forward"}, q.Get("direction")) {
		return sandbox.InvalidField("direction", "must be forward or backward")
	}
	lowest := max(0, slices.Index(levels, q.Get("level")))
	if q.Get("level") != "" && levels[lowest] != q.Get("level") {
		return sandbox.InvalidField("level", "must be one of %s", strings.Join(levels, ", "))
	}
	cursor, err := number(r, "cursor", 0, 0, 1<<50) // milliseconds
	if err != nil {
		return err
	}
	f := sandbox.EventFilter{Descending: backward}
	if backward && cursor != 0 {
		f.Until = instant(cursor + 1)
	} else {
		f.Since = instant(cursor)
	}
	if lowest > slices.Index(levels, levelInfo) {
		f.Types = failures
	}
	list, err := s.events(r, f, q.Get("search"))
	if err != nil {
		return err
	}
	out := struct {
		Logs []logEntry `json:"logs"`
	}{[]logEntry{}}
	for _, e := range list {
		out.Logs = append(out.Logs, logEntryOf(e))
	}
	return answer(w, http.StatusOK, out)
}
