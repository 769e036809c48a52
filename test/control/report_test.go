package control_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/modbox/modbox/internal/bench"
	"github.com/modbox/modbox/internal/store/storetest"
)

// usage is the CPU time that this process and its sessions of PostgreSQL have used up to a moment, or within a time.
type usage struct {
	at               time.Time
	server, database time.Duration
	of               time.Duration // the time within which
}

func (u usage) since(begin usage) usage {
	return usage{server: u.server - begin.server, database: max(0, u.database-begin.database), of: u.at.Sub(begin.at)} // a session may have ended
}

// percent is the part of a core.
func (u usage) percent(d time.Duration) float64 { return 100 * float64(d) / float64(u.of) }

// watch returns what is used while there are no requests.
func (s *server) watch(d time.Duration) usage {
	s.T.Helper()
	begin := s.usage()
	time.Sleep(d)
	return s.usage().since(begin)
}

func (s *server) usage() (u usage) {
	s.T.Helper()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		s.T.Fatal(err)
	}
	u.at = time.Now()
	u.server = time.Duration(r.Utime.Nano() + r.Stime.Nano())
	if !storetest.Postgres() {
		return u
	}
	rows, err := s.Store.Reader().QueryContext(s.T.Context(), "SELECT pid FROM pg_stat_activity WHERE datname = current_database()")
	if err != nil {
		s.T.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var pid int
		if err := rows.Scan(&pid); err != nil {
			s.T.Fatal(err)
		}
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil { // else the session has ended
			u.database += cpuOf(string(stat))
		}
	}
	if err := rows.Err(); err != nil {
		s.T.Fatal(err)
	}
	return u
}

// cpuOf returns the CPU time in the text of /proc/PID/stat.
func cpuOf(stat string) time.Duration {
	var user, system int64
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	_, _ = fmt.Sscan(fields[11], &user)
	_, _ = fmt.Sscan(fields[12], &system)
	return time.Duration(user+system) * time.Second / 100 // clock ticks
}

// compared are the quantities in which report compares the stages.
var compared = []struct {
	name string
	of   func(series) float64
}{
	{"calls a second", series.rate},
	{"p50", func(s series) float64 { return milliseconds(bench.Quantile(s.samples, .5)) }},
	{"p99", func(s series) float64 { return milliseconds(bench.Quantile(s.samples, .99)) }},
	{"CPU", func(s series) float64 { return milliseconds(s.cpu()) }},
}

// report compares the stages with the first.
func report(engine string, stages []stage) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n| %s, %d clients; calls a second, p50, p99 and CPU in ms |", engine, *clients)
	for _, m := range stages {
		fmt.Fprintf(&b, " %s |", m.name)
	}
	for _, c := range compared {
		fmt.Fprintf(&b, " ratios of %s |", c.name)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(stages)+len(compared)) + "\n")
	for i, first := range stages[0].calls {
		fmt.Fprintf(&b, "| %s |", first.name)
		for _, m := range stages {
			s := m.calls[i]
			fmt.Fprintf(&b, " %.0f, %.1f, %.1f, %.2f |", compared[0].of(s), compared[1].of(s), compared[2].of(s), compared[3].of(s))
		}
		for _, c := range compared {
			var ratios []string
			for _, m := range stages[1:] {
				ratios = append(ratios, fmt.Sprintf("%.2f", c.of(m.calls[i])/c.of(first)))
			}
			fmt.Fprintf(&b, " %s |", strings.Join(ratios, ", "))
		}
		b.WriteString("\n")
	}
	b.WriteString("| at rest: CPU of server and database, of a core |")
	for _, m := range stages {
		fmt.Fprintf(&b, " %.1f %%, %.1f %% |", m.rest.percent(m.rest.server), m.rest.percent(m.rest.database))
	}
	b.WriteString(strings.Repeat(" |", len(compared)) + "\n")
	for _, m := range stages {
		for _, s := range m.calls {
			i := slices.IndexFunc(m.calls, func(direct series) bool { return direct.name == forwarded[s.name] })
			if i < 0 {
				continue
			}
			fmt.Fprintf(&b, "%s: %s, to the call without:", m.name, s.name)
			for _, c := range compared {
				fmt.Fprintf(&b, " %s %.2f;", c.name, c.of(s)/c.of(m.calls[i]))
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

// rate is the number of calls a second.
func (s series) rate() float64 { return float64(len(s.samples)) / s.used.of.Seconds() }

// cpu is the CPU time of a call, with its client.
func (s series) cpu() time.Duration {
	return (s.used.server + s.used.database) / time.Duration(len(s.samples))
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
