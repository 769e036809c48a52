package main

import (
	"testing"
	"time"

	"github.com/modbox/modbox/internal/bench"
)

func TestVerdict(t *testing.T) {
	times := func(ms ...int) (s bench.Series) {
		for _, d := range ms {
			s.Samples = append(s.Samples, time.Duration(d)*time.Millisecond)
		}
		return s
	}
	base := times(100, 104, 98, 101, 103, 99, 100, 102, 97, 100)
	for _, c := range []struct {
		name string
		got  bench.Series
		base bench.Series
		want string
	}{
		{"a third more in each round", times(133, 140, 131, 135, 137, 132, 133, 136, 129, 133), base, slower},
		{"a third less in each round", times(67, 70, 65, 67, 69, 66, 67, 68, 64, 67), base, faster},
		{"more in some rounds", times(133, 100, 131, 98, 137, 97, 133, 99, 129, 96), base, noDifference},
		{"1 % more in each round, which is within the spread", times(101, 105, 99, 102, 104, 100, 101, 103, 98, 101), base, noDifference},
		{"a third more, but in three rounds only", times(133, 140, 131), times(100, 104, 98), tooFewRounds},
	} {
		if got := verdict(ratioOf(c.got, c.base), c.got, c.base); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
