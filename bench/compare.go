package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"

	"golang.org/x/perf/benchmath"

	"github.com/modbox/modbox/internal/bench"
)

// confidence is the confidence level of the interval of a ratio. With about 20 rows, a lower level would
// often report a difference that is spread.
const confidence = 0.99

// errSlower says that a row of a comparison is slower.
var errSlower = errors.New("rows are slower than the spread")

// compare measures two servers alternately, and prints for each row how many times the time of base
// m takes. Its error is errSlower if a row takes longer and the difference is not spread.
func compare(ctx context.Context, o options, m, base *bench.Server) (err error) {
	var lines [2][]bench.Line
	for i, side := range []*bench.Server{m, base} {
		var end func()
		lines[i], end, err = fixtures(ctx, o, side)
		defer end()
		if err != nil {
			return err
		}
	}
	fmt.Printf("# Comparison\n\nmodbox %s with modbox %s, %d cores, %d rounds per row after a warm-up, sides alternating.\n\n",
		m.Version(ctx), base.Version(ctx), runtime.NumCPU(), o.rounds)
	fmt.Print("| what | new p50 | new p25–p75 | base p50 | base p25–p75 | new / base | interval | result |\n|---|---|---|---|---|---|---|---|\n")
	var failed []string
	for i, l := range lines[0] {
		if !o.only.MatchString(l.What) {
			continue
		}
		got, err := bench.Alternate(ctx, o.rounds, bench.Side{Name: "new", Run: l.Ours}, bench.Side{Name: "base", Run: lines[1][i].Ours})
		if err != nil {
			return fmt.Errorf("%s: %w", l.What, err)
		}
		ratio := ratioOf(got[0], got[1])
		result := verdict(ratio, got[0], got[1])
		if result == slower {
			failed = append(failed, l.What)
		}
		fmt.Printf("| %s | %s | %s | %s | %s | %.3f | %.3f–%.3f | %s |\n", l.What, bench.Milliseconds(bench.Quantile(got[0].Samples, .5)), got[0].Spread(),
			bench.Milliseconds(bench.Quantile(got[1].Samples, .5)), got[1].Spread(), ratio.Center, ratio.Lo, ratio.Hi, result)
	}
	if failed != nil {
		return fmt.Errorf("%w: %s", errSlower, strings.Join(failed, "; "))
	}
	return nil
}

// ratioOf returns the median of the ratios of the rounds, in which both sides ran one after the
// other, and its interval. The interval assumes nothing of their distribution; it is infinite
// with too few rounds.
func ratioOf(got, base bench.Series) benchmath.Summary {
	ratios := make([]float64, len(got.Samples))
	for i, d := range got.Samples {
		ratios[i] = float64(d) / float64(base.Samples[i])
	}
	return benchmath.AssumeNothing.Summary(benchmath.NewSample(ratios, &benchmath.DefaultThresholds), confidence)
}

// Results of a comparison.
const (
	slower       = "**slower**"
	faster       = "faster"
	noDifference = "no difference"
	tooFewRounds = "too few rounds"
)

// verdict names a difference only if chance does not explain it, and the median lies outside
// of the middle half of base.
func verdict(ratio benchmath.Summary, got, base bench.Series) string {
	p50 := bench.Quantile(got.Samples, .5)
	switch {
	case math.IsInf(ratio.Hi, 1):
		return tooFewRounds
	case ratio.Lo > 1 && p50 > bench.Quantile(base.Samples, .75):
		return slower
	case ratio.Hi < 1 && p50 < bench.Quantile(base.Samples, .25):
		return faster
	}
	return noDifference
}

// fixtures returns the rows for a server, whose sandboxes end with end, also after an error.
func fixtures(ctx context.Context, o options, m *bench.Server) (lines []bench.Line, end func(), err error) {
	f, err := bench.NewFixtures(ctx, m)
	if err != nil {
		return nil, func() {}, err
	}
	end = func() { f.Close(ctx) }
	heap, err := m.HeapPython(ctx)
	if heap != "" {
		end = func() {
			_ = m.Remove(context.WithoutCancel(ctx), heap) // its ttl ends it otherwise
			f.Close(ctx)
		}
	}
	if err != nil {
		return nil, end, err
	}
	url, err := m.ServeIn(ctx, f.Box)
	if err != nil {
		return nil, end, err
	}
	lines = bench.Lines(o.burst, m, f)
	for i := range lines {
		lines[i].Peer, lines[i].Theirs = "", nil
	}
	return append(lines,
		bench.Line{What: "make and revoke an API token, both on the disk when answered, API", Ours: m.Commits},
		bench.Line{What: fmt.Sprintf("the same, %d times by each of %d clients at once", bench.CommitsEach, bench.CommitsAtOnce), Ours: m.ManyCommits},
		bench.Line{What: "fork one with a heap of 50 MB → the copy has answered, API", Ours: m.Fork(heap, 1)},
		bench.Line{What: "standstill of that one while it is forked", Ours: m.Standstill(heap)},
		bench.Line{What: fmt.Sprintf("%d requests through a sandbox's URL by each of %d clients at once", bench.RequestsEach, bench.LoadAtOnce), Ours: bench.Requests(url)},
	), end, nil
}
