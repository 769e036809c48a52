package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
)

// Row is a measured time.
type Row struct {
	What   string  `json:"what"`
	Ours   Series  `json:"ours"`
	Peer   Series  `json:"peer,omitzero"` // without samples when there is no peer
	Target float64 `json:"target_ratio,omitempty"`
}

// Fact is a measured value that is no time, or that has no counterpart.
type Fact struct {
	What    string `json:"what"`
	Ours    string `json:"ours"`
	Against string `json:"against,omitempty"`
	Theirs  string `json:"theirs,omitempty"`
	Ratio   string `json:"ratio,omitempty"`
	Target  string `json:"target,omitempty"`
	Met     bool   `json:"met"`
}

// Host is the machine of a run.
type Host struct {
	Cores       int    `json:"cores"`
	MemoryBytes int64  `json:"memory_bytes"`
	Kernel      string `json:"kernel"`
}

// Report is everything that one run measured.
type Report struct {
	Version string    `json:"version"`
	Date    time.Time `json:"date"`
	Host    Host      `json:"host"`
	Rounds  int       `json:"rounds"`
	Rows    []Row     `json:"rows"`
	Facts   []Fact    `json:"facts"`
	Notes   []string  `json:"notes,omitempty"`

	seen func(text string)
}

// NewReport returns an empty report of a server on this host. It calls seen, unless nil, after each row.
func NewReport(version string, rounds int, seen func(text string)) *Report {
	return &Report{Version: version, Date: time.Now().UTC().Truncate(time.Second), Host: thisHost(), Rounds: rounds, seen: seen}
}

func (r *Report) see(row Row) {
	if r.seen != nil {
		r.seen(fmt.Sprintf("%s: %s", row.What, Milliseconds(Quantile(row.Ours.Samples, .5))))
	}
}

// MarshalJSON has the samples in milliseconds, with their quantiles.
func (s Series) MarshalJSON() ([]byte, error) {
	ms := func(d time.Duration) float64 { return float64(d.Round(time.Microsecond)) / float64(time.Millisecond) }
	samples := make([]float64, len(s.Samples))
	for i, d := range s.Samples {
		samples[i] = ms(d)
	}
	q := func(q float64) float64 { return ms(Quantile(s.Samples, q)) }
	return json.Marshal(struct {
		Name    string    `json:"name"`
		P50     float64   `json:"p50_ms"`
		P25     float64   `json:"p25_ms"`
		P75     float64   `json:"p75_ms"`
		P99     float64   `json:"p99_ms"`
		Samples []float64 `json:"samples_ms"`
	}{s.Name, q(.5), q(.25), q(.75), q(.99), samples})
}

// Text renders the report for a terminal.
func (r *Report) Text(w io.Writer) error {
	fmt.Fprintf(w, "modbox %s, %s, %d cores, %.1f GiB of memory, kernel %s, %d rounds a row\n\n",
		r.Version, r.Date.Format(time.DateOnly), r.Host.Cores, float64(r.Host.MemoryBytes)/(1<<30), r.Host.Kernel, r.Rounds)
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "TIME\tP50\tP25–P75\tP99")
	for _, row := range r.Rows {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", row.What, Milliseconds(Quantile(row.Ours.Samples, .5)), row.Ours.Spread(), Milliseconds(Quantile(row.Ours.Samples, .99)))
		if len(row.Peer.Samples) > 0 {
			fmt.Fprintf(t, "  beside: %s\t%s\t%s\t%s\n", row.Peer.Name, Milliseconds(Quantile(row.Peer.Samples, .5)), row.Peer.Spread(), Milliseconds(Quantile(row.Peer.Samples, .99)))
		}
	}
	fmt.Fprintln(t, "\nVALUE\tMEASURED\tEXPECTED\tBESIDE")
	for _, f := range r.Facts {
		beside := f.Against
		if f.Theirs != "" {
			beside = f.Theirs + " (" + f.Against + ")"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", f.What, f.Ours, f.Target, beside)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(t, "\n%s\n", n)
	}
	return t.Flush()
}

// Markdown renders the report with the ratios of the peers.
func (r *Report) Markdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Benchmark\n\nmodbox %s, %s, %d cores, kernel %s, %d rounds per row after a warm-up, sides alternating.\n\n",
		r.Version, r.Date.Format(time.DateOnly), r.Host.Cores, r.Host.Kernel, r.Rounds)
	b.WriteString("Ratios are ours divided by the peer's, from this run; a lower one is better. Times are given so that\n" +
		"the ratios can be checked; they say nothing on another machine.\n\n")
	b.WriteString("| what | ours p50 | ours p25–p75 | ours p99 | peer | peer p50 | peer p99 | ratio p50 | ratio p99 | target | met |\n|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, row := range r.Rows {
		b.WriteString(row.line())
	}
	if len(r.Facts) > 0 {
		b.WriteString("\n| what | ours | against | theirs | ratio | target | met |\n|---|---|---|---|---|---|---|\n")
		for _, f := range r.Facts {
			verdict := ""
			if f.Target != "" {
				verdict = met(f.Met)
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", f.What, f.Ours, f.Against, f.Theirs, f.Ratio, f.Target, verdict)
		}
	}
	if len(r.Notes) > 0 {
		b.WriteString("\n")
		for _, n := range r.Notes {
			fmt.Fprintf(&b, "- %s\n", n)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r Row) line() string {
	p50, p99 := Quantile(r.Ours.Samples, .5), Quantile(r.Ours.Samples, .99)
	if len(r.Peer.Samples) == 0 {
		return fmt.Sprintf("| %s | %s | %s | %s | none | | | | | %s | |\n", r.What, Milliseconds(p50), r.Ours.Spread(), Milliseconds(p99), bound(r.Target))
	}
	q50, q99 := Quantile(r.Peer.Samples, .5), Quantile(r.Peer.Samples, .99)
	ratio50, ratio99 := float64(p50)/float64(q50), float64(p99)/float64(q99)
	verdict := ""
	if r.Target > 0 {
		verdict = met(ratio50 <= r.Target)
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %s | %.3f | %.3f | %s | %s |\n",
		r.What, Milliseconds(p50), r.Ours.Spread(), Milliseconds(p99), r.Peer.Name, Milliseconds(q50), Milliseconds(q99), ratio50, ratio99, bound(r.Target), verdict)
}

func bound(target float64) string {
	if target == 0 {
		return ""
	}
	return fmt.Sprintf("≤ %.2g ×", target)
}

func met(ok bool) string {
	if ok {
		return "yes"
	}
	return "**no**"
}

// Milliseconds returns a time as text.
func Milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

func mib(b int64) string {
	if b == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f MiB", float64(b)/(1<<20))
}

// thisHost describes this machine.
func thisHost() Host {
	h := Host{Cores: runtime.NumCPU(), Kernel: "unknown"}
	var u unix.Utsname
	if err := unix.Uname(&u); err == nil {
		h.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	var s unix.Sysinfo_t
	if err := unix.Sysinfo(&s); err == nil {
		h.MemoryBytes = int64(s.Totalram) * int64(s.Unit)
	}
	return h
}
