package control_test

import (
	"fmt"
	"os"
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

// report compares the stages with the first.
func report(engine string, stages []stage) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n| %s, %d clients; calls a second, p50 and p99 in ms, CPU in ms |", engine, *clients)
	for _, m := range stages {
		fmt.Fprintf(&b, " %s |", m.name)
	}
	b.WriteString(" ratios of p50 | ratios of CPU |\n|---|" + strings.Repeat("---|", len(stages)+2) + "\n")
	for i, first := range stages[0].calls {
		fmt.Fprintf(&b, "| %s |", first.name)
		var times, cpus []string
		for _, m := range stages {
			c := m.calls[i]
			p50 := bench.Quantile(c.samples, .5)
			fmt.Fprintf(&b, " %.0f, %.1f, %.1f, %.2f |", float64(len(c.samples))/c.used.of.Seconds(), milliseconds(p50), milliseconds(bench.Quantile(c.samples, .99)), milliseconds(c.cpu()))
			times = append(times, fmt.Sprintf("%.2f", float64(p50)/float64(bench.Quantile(first.samples, .5))))
			cpus = append(cpus, fmt.Sprintf("%.2f", float64(c.cpu())/float64(first.cpu())))
		}
		fmt.Fprintf(&b, " %s | %s |\n", strings.Join(times[1:], ", "), strings.Join(cpus[1:], ", "))
	}
	b.WriteString("| at rest: CPU of server and database, of a core |")
	for _, m := range stages {
		fmt.Fprintf(&b, " %.1f %%, %.1f %% |", m.rest.percent(m.rest.server), m.rest.percent(m.rest.database))
	}
	b.WriteString(" | |\n")
	return b.String()
}

// cpu is the CPU time of a call, with its client.
func (s series) cpu() time.Duration {
	return (s.used.server + s.used.database) / time.Duration(len(s.samples))
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
