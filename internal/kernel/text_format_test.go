package kernel_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/kernelapi"
)

// format runs code and returns the last of its values in a format, nil if it has none.
func (s *server) format(code, mime string) map[string]any {
	s.t.Helper()
	e := s.begin(kernelapi.Run{Code: code})
	var value map[string]any
	for {
		ev, ok := e.next()
		if !ok {
			return value
		}
		if data := ev.Data[mime]; data != nil {
			if err := json.Unmarshal(data, &value); err != nil {
				s.t.Fatal(err)
			}
		}
		if ev.Type == kernelapi.Failure {
			s.t.Errorf("%s: %s %v", code, ev.Value, ev.Traceback)
		}
	}
}

// TestCharts reads figures of Matplotlib as data.
func TestCharts(t *testing.T) {
	s := start(t)
	points := func(label string, points ...any) any { return map[string]any{"label": label, "points": points} }
	bar := func(group, label string, value float64) any {
		return map[string]any{"group": group, "label": label, "value": value}
	}
	for _, tc := range []struct {
		code string
		want map[string]any
	}{
		{"plt.plot([1, 2], [3, float('nan')], label='a'); plt.plot([1], [2]); plt.axhline(3); plt.title('T'); plt.ylabel('v [m]'); plt.yscale('log')", map[string]any{
			"type": "line", "title": "T", "y_label": "v [m]", "y_unit": "m", "y_scale": "log", "x_unit": nil,
			"elements": []any{points("a", []any{1., 3.}, []any{2., nil}), points("", []any{1., 2.})},
		}},
		{"import datetime as d; plt.plot([d.date(2026, 1, 2), d.date(2026, 1, 3)], [0, 1])", map[string]any{
			"x_scale": "datetime", "elements": []any{points("", []any{"2026-01-02T00:00:00", 0.}, []any{"2026-01-03T00:00:00", 1.})},
		}},
		{"plt.scatter([1, 2], [3, 4], label='s'); plt.plot([5], [6], 'o')", map[string]any{
			"type": "scatter", "elements": []any{points("", []any{5., 6.}), points("s", []any{1., 3.}, []any{2., 4.})},
		}},
		{"plt.bar(['x', 'y'], [3, 4], label='g')", map[string]any{"type": "bar", "x_scale": "categorical", "elements": []any{bar("g", "x", 3), bar("g", "y", 4)}}},
		{"plt.barh(['x', 'y'], [3, 4])", map[string]any{"type": "bar", "elements": []any{bar("", "x", 3), bar("", "y", 4)}}},
		{"plt.pie([1, 3], labels=['q', 'r'])", map[string]any{"type": "pie", "elements": []any{
			map[string]any{"label": "q", "angle": 90., "radius": 1.}, map[string]any{"label": "r", "angle": 270., "radius": 1.},
		}}},
		{"plt.boxplot([[1, 2, 3, 4, 5, 20], [7, 7, 8]], labels=['p', 'q'])", map[string]any{"type": "box_and_whisker", "elements": []any{
			map[string]any{"label": "p", "min": 1., "first_quartile": 2.25, "median": 3.5, "third_quartile": 4.75, "max": 5., "outliers": []any{20.}},
			map[string]any{"label": "q", "min": 7., "first_quartile": 7., "median": 7., "third_quartile": 7.5, "max": 8., "outliers": []any{}},
		}}},
		{"plt.plot(range(20000))", map[string]any{"type": "line", "truncated": true}},
		{"f, (a, b) = plt.subplots(1, 2); f.suptitle('S'); a.plot([1]); b.bar([1], [2])", map[string]any{"type": "superchart", "title": "S"}},
		{"plt.imshow([[1, 2], [3, 4]])", map[string]any{"type": nil}},
	} {
		chart := s.format("import matplotlib.pyplot as plt\n"+tc.code+";", "application/vnd.modbox.chart+json")
		for key, want := range tc.want {
			if diff := cmp.Diff(want, chart[key]); diff != "" {
				t.Errorf("%s: %s (-want +got):\n%s", tc.code, key, diff)
			}
		}
	}
}

// TestTables reads data frames of pandas as data.
func TestTables(t *testing.T) {
	s := start(t)
	for _, tc := range []struct {
		code    string
		rows    any // nil for no table, a number of them, or the rows
		total   float64
		columns float64
	}{
		{"pd.DataFrame({'n': [1, 2], 's': ['x', None]})", []any{map[string]any{"index": 0., "n": 1., "s": "x"}, map[string]any{"index": 1., "n": 2., "s": nil}}, 2, 2},
		{"pd.DataFrame({'n': [float('nan')]}, index=pd.Index([pd.Timestamp('2026-01-02')], name='day'))", []any{map[string]any{"day": "2026-01-02T00:00:00.000", "n": nil}}, 1, 1},
		{"pd.Series([3])", []any{map[string]any{"index": 0., "values": 3.}}, 1, 1},
		{"pd.DataFrame({'n': range(5000)})", 1000, 5000, 1},
		{"pd.DataFrame({'s': ['x' * 2000] * 1000})", 500, 1000, 1},
		{"pd.DataFrame({'s': ['x' * 2000000]})", 0, 1, 1},
		{"pd.DataFrame([[1, 2]], columns=['a', 'a'])", nil, 0, 0},
		{"pd.DataFrame(columns=['a'])", []any{}, 0, 1},
	} {
		table := s.format("import pandas as pd\n"+tc.code, "application/vnd.dataresource+json")
		if tc.rows == nil {
			if table != nil {
				t.Errorf("%s = %v, want no table", tc.code, table)
			}
			continue
		}
		rows, _ := table["data"].([]any)
		var got any = rows
		if _, ok := tc.rows.(int); ok {
			got = len(rows)
		}
		if diff := cmp.Diff(tc.rows, got); diff != "" || table["total_rows"] != tc.total || table["total_columns"] != tc.columns {
			t.Errorf("%s has %v rows and %v columns; rows (-want +got):\n%s", tc.code, table["total_rows"], table["total_columns"], diff)
		}
	}
}
