package store

import "testing"

// Notes of any number of sandboxes are few different statements.
func TestPadded(t *testing.T) {
	sizes := map[int]bool{}
	for n := 1; n <= noteBatch; n++ {
		rows := make([][]any, n, 2*noteBatch)
		for i := range rows {
			rows[i] = []any{i}
		}
		got := padded(rows)
		sizes[len(got)] = true
		for i, row := range got {
			if want := min(i, n-1); row[0] != want {
				t.Fatalf("row %d of padded(%d rows) is %v, want %d", i, n, row[0], want)
			}
		}
		if rows = rows[:cap(rows)]; rows[n] != nil {
			t.Fatalf("padded(%d rows) overwrites the rows of the next statement", n)
		}
	}
	if len(sizes) > 5 {
		t.Errorf("notes have %d sizes, want at most 5", len(sizes))
	}
}
