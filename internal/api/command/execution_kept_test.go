package command

import (
	"errors"
	"strings"
	"testing"
)

func TestKept(t *testing.T) {
	for name, tc := range map[string]struct {
		max, memory int
		pieces      []int
		want        int
		truncated   bool
	}{
		"little":             {max: 100, pieces: []int{30, 40}, want: 70},
		"just_all":           {max: 100, pieces: []int{60, 40, 0}, want: 100},
		"too_much":           {max: 100, pieces: []int{60, 60, 60}, want: 100, truncated: true},
		"free":               {max: 1 << 20, pieces: []int{freeOutput}, want: freeOutput},
		"no_memory":          {max: 1 << 20, pieces: []int{freeOutput - 1, 2, 1}, want: freeOutput, truncated: true},
		"memory":             {max: 1 << 20, memory: 1 << 20, pieces: []int{1 << 19, 1 << 19}, want: 1 << 20},
		"not_enough":         {max: 1 << 20, memory: 1 << 19, pieces: []int{1 << 17, 1 << 19, 1}, want: 1 << 18, truncated: true},
		"nothing_after_that": {max: 100 << 10, pieces: []int{40 << 10, 10}, want: freeOutput, truncated: true},
	} {
		t.Run(name, func(t *testing.T) {
			var k kept
			left := tc.memory
			all := ""
			for i, n := range tc.pieces {
				piece := strings.Repeat(string(rune('a'+i)), n)
				all += piece
				k.add([]byte(piece), tc.max, func(n int) error {
					if n > left {
						return errors.New("no memory")
					}
					left -= n
					return nil
				})
			}
			if string(k.data) != all[:tc.want] || k.truncated != tc.truncated {
				t.Errorf("%d bytes are kept, truncated: %v; want the first %d, %v", len(k.data), k.truncated, tc.want, tc.truncated)
			}
			if most := freeOutput + tc.memory - left; cap(k.data) > most {
				t.Errorf("%d bytes are held, and %d counted", cap(k.data), most)
			}
		})
	}
}
