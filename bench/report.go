package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// row is one line of the report.
type row struct {
	what   string
	ours   series
	peer   series // without samples when there is no peer
	target float64
}

// fact is a measured value that is no time, or that Docker has no counterpart of.
type fact struct {
	what, ours, against, theirs, ratio, target string
	met                                        bool
}

// report is everything one run measured.
type report struct {
	version string
	rounds  int
	rows    []row
	facts   []fact
	notes   []string
}

// write renders the report as Markdown.
func (r *report) write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Benchmark\n\nmodbox %s, %s, %d cores, kernel %s, %d rounds per row after a warm-up, sides alternating.\n\n",
		r.version, time.Now().UTC().Format("2006-01-02"), runtime.NumCPU(), kernel(), r.rounds)
	b.WriteString("Ratios are ours divided by the peer's, from this run; a lower one is better. Times are given so that\n" +
		"the ratios can be checked; they say nothing on another machine.\n\n")
	b.WriteString("| what | ours p50 | ours p25–p75 | ours p99 | peer | peer p50 | peer p99 | ratio p50 | ratio p99 | target | met |\n|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, row := range r.rows {
		b.WriteString(row.line())
	}
	if len(r.facts) > 0 {
		b.WriteString("\n| what | ours | against | theirs | ratio | target | met |\n|---|---|---|---|---|---|---|\n")
		for _, f := range r.facts {
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", f.what, f.ours, f.against, f.theirs, f.ratio, f.target, met(f.met))
		}
	}
	if len(r.notes) > 0 {
		b.WriteString("\n")
		for _, n := range r.notes {
			fmt.Fprintf(&b, "- %s\n", n)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r row) line() string {
	p50, p99 := quantile(r.ours.samples, .5), quantile(r.ours.samples, .99)
	if len(r.peer.samples) == 0 {
		return fmt.Sprintf("| %s | %s | %s | %s | none | | | | | %s | |\n", r.what, ms(p50), r.ours.spread(), ms(p99), bound(r.target))
	}
	q50, q99 := quantile(r.peer.samples, .5), quantile(r.peer.samples, .99)
	ratio50, ratio99 := float64(p50)/float64(q50), float64(p99)/float64(q99)
	verdict := ""
	if r.target > 0 {
		verdict = met(ratio50 <= r.target)
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %s | %.3f | %.3f | %s | %s |\n",
		r.what, ms(p50), r.ours.spread(), ms(p99), r.peer.name, ms(q50), ms(q99), ratio50, ratio99, bound(r.target), verdict)
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

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond)) }

func mib(b int64) string {
	if b == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f MiB", float64(b)/(1<<20))
}

// kernel returns the running kernel's release.
func kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}

// writeFile writes the report to a file and to standard output.
func (r *report) writeFile(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return r.write(io.MultiWriter(f, os.Stdout))
}
