package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/perf/benchmath"
)

// confidence is the confidence level of the interval of a ratio. With about 20 rows, a lower level would
// often report a difference that is spread.
const confidence = 0.99

// errSlower says that a row of a comparison is slower.
var errSlower = errors.New("rows are slower than the spread")

// compare measures two servers in turns, and prints for each row how many times the time of base
// m takes. Its error is errSlower if a row takes longer and the difference is not spread.
func compare(ctx context.Context, o options, m, base *modbox) (err error) {
	var lines [2][]line
	for i, side := range []*modbox{m, base} {
		var end func()
		lines[i], end, err = fixtures(ctx, o, side)
		defer end()
		if err != nil {
			return err
		}
	}
	fmt.Printf("# Comparison\n\nmodbox %s with modbox %s, %d cores, %d rounds per row after a warm-up, sides alternating.\n\n",
		m.version(ctx), base.version(ctx), runtime.NumCPU(), o.rounds)
	fmt.Print("| what | new p50 | new p25–p75 | base p50 | base p25–p75 | new / base | interval | result |\n|---|---|---|---|---|---|---|---|\n")
	var failed []string
	for i, l := range lines[0] {
		if !o.only.MatchString(l.what) {
			continue
		}
		got, err := alternate(ctx, o.rounds, side{"new", l.ours}, side{"base", lines[1][i].ours})
		if err != nil {
			return fmt.Errorf("%s: %w", l.what, err)
		}
		ratio := ratioOf(got[0], got[1])
		result := verdict(ratio, got[0], got[1])
		if result == slower {
			failed = append(failed, l.what)
		}
		fmt.Printf("| %s | %s | %s | %s | %s | %.3f | %.3f–%.3f | %s |\n", l.what, ms(quantile(got[0].samples, .5)), got[0].spread(),
			ms(quantile(got[1].samples, .5)), got[1].spread(), ratio.Center, ratio.Lo, ratio.Hi, result)
	}
	if failed != nil {
		return fmt.Errorf("%w: %s", errSlower, strings.Join(failed, "; "))
	}
	return nil
}

// ratioOf returns the median of the ratios of the rounds, in which both sides ran one after the
// other, and its interval. The interval assumes nothing of their distribution; it is infinite
// with too few rounds.
func ratioOf(got, base series) benchmath.Summary {
	ratios := make([]float64, len(got.samples))
	for i, d := range got.samples {
		ratios[i] = float64(d) / float64(base.samples[i])
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
func verdict(ratio benchmath.Summary, got, base series) string {
	p50 := quantile(got.samples, .5)
	switch {
	case math.IsInf(ratio.Hi, 1):
		return tooFewRounds
	case ratio.Lo > 1 && p50 > quantile(base.samples, .75):
		return slower
	case ratio.Hi < 1 && p50 < quantile(base.samples, .25):
		return faster
	}
	return noDifference
}

// fixtures returns the rows for a server, whose sandboxes end with end, also after an error.
func fixtures(ctx context.Context, o options, m *modbox) (lines []line, end func(), err error) {
	var made []string
	file, err := randomFile()
	end = func() {
		for _, id := range made {
			_ = m.remove(context.WithoutCancel(ctx), id) // its ttl ends it otherwise
		}
		_ = os.Remove(file)
	}
	if err != nil {
		return nil, end, err
	}
	for _, start := range []func(context.Context) (string, error){m.start, m.idlePython, m.startData, m.heapPython} {
		id, err := start(ctx)
		if id != "" {
			made = append(made, id)
		}
		if err != nil {
			return nil, end, err
		}
	}
	box, idle, data, heap := made[0], made[1], made[2], made[3]
	url, err := m.serveIn(ctx, box)
	if err != nil {
		return nil, end, err
	}
	return append(rows(o, m, nil, box, "", idle, file),
		line{what: "`1+1` in a warm Python context, API", ours: m.code(data)},
		line{what: "cold create of a data sandbox → first `1+1` in Python, API", ours: m.afterCreate(m.code)},
		line{what: "make and revoke an API token, both on the disk when answered, API", ours: m.commits},
		line{what: fmt.Sprintf("the same, %d times by each of %d clients at once", commitsEach, commitsAtOnce), ours: m.manyCommits},
		line{what: "fork one with a heap of 50 MB → the copy has answered, API", ours: m.fork(heap, 1)},
		line{what: fmt.Sprintf("%d requests through a sandbox's URL by each of %d clients at once", requestsEach, loadAtOnce), ours: requests(url)},
	), end, nil
}

// How much each client does in a round of a comparison.
const (
	commitsEach  = 5
	requestsEach = 50
)

// manyCommits measures commits of many clients at once.
func (m *modbox) manyCommits(ctx context.Context) (time.Duration, error) {
	return timed(func() error {
		return parallel(commitsAtOnce, func(int) error {
			for range commitsEach {
				if _, err := m.commits(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// requests measures requests of many clients at once to a server of [serve].
func requests(url string) op {
	c := keepingClient()
	return func(ctx context.Context) (time.Duration, error) {
		return timed(func() error {
			return parallel(loadAtOnce, func(int) error {
				for range requestsEach {
					if err := get(ctx, c, url); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}
