package bench_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/bench"
)

func times(name string, ms ...int) bench.Series {
	s := bench.Series{Name: name}
	for _, d := range ms {
		s.Samples = append(s.Samples, time.Duration(d)*time.Millisecond)
	}
	return s
}

func sample() *bench.Report {
	r := bench.NewReport("v1.2.3", 5, nil)
	r.Rows = []bench.Row{
		{What: "`true` in a sandbox", Ours: times("modbox", 10, 12, 11, 14, 13), Peer: times("docker exec", 60, 61, 62, 63, 64), Target: 0.1},
		{What: "one </script><b>bold</b> name", Ours: times("modbox", 200000, 1, 1, 1, 1)},
	}
	r.Facts = []bench.Fact{{What: "memory", Ours: "8 MiB", Target: "≤ 12 MiB", Met: true}, {What: "rate", Ours: "100", Against: "inside", Theirs: "400", Target: "≥ 0.6 ×"}, {What: "without a target", Ours: "1 %"}}
	r.Notes = []string{"A note."}
	return r
}

func TestJSON(t *testing.T) {
	data, err := json.Marshal(sample())
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Version string
		Host    struct {
			Cores  int
			Memory int64 `json:"memory_bytes"`
		}
		Rows []struct {
			Ours struct {
				P50     float64   `json:"p50_ms"`
				Samples []float64 `json:"samples_ms"`
			}
			Peer *struct{ Name string }
		}
	}
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if got.Version != "v1.2.3" || got.Host.Cores < 1 || got.Host.Memory < 1<<20 || len(got.Rows) != 2 {
		t.Errorf("report = %s", data)
	}
	if row := got.Rows[0]; row.Ours.P50 != 12 || len(row.Ours.Samples) != 5 || row.Peer == nil || row.Peer.Name != "docker exec" {
		t.Errorf("first row = %+v, want its median, its samples and its peer", row)
	}
	if got.Rows[1].Peer != nil {
		t.Errorf("the row without a peer has %+v", got.Rows[1].Peer)
	}
}

// TestPage: the page is well formed, closed to other hosts, and has a plot for each side of each row.
func TestPage(t *testing.T) {
	var b bytes.Buffer
	if err := sample().HTML(&b); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	if n := strings.Count(page, `class="box"`); n != 3 {
		t.Errorf("%d plots, want 3", n)
	}
	if n := strings.Count(page, `class="dot"`); n != 15 {
		t.Errorf("%d dots, want one for each of 15 rounds", n)
	}
	if strings.Contains(page, "<b>bold") || strings.Count(page, "</script>") != 1 {
		t.Error("the name of a row became markup")
	}
	if found := regexp.MustCompile(`(?i)(src|href|url)\s*[=(]|https?:|@import`).FindString(page); found != "" {
		t.Errorf("the page refers to something outside: %q", found)
	}
	for _, want := range []string{"v1.2.3", "12.0 ms", "beside: docker exec", "not met", "A note.", "default-src 'none'"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	d := xml.NewDecoder(strings.NewReader(page))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	for {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("the page is not well formed: %v", err)
		}
	}
	var data struct{ Version string }
	_, rest, _ := strings.Cut(page, `id="report">`)
	text, _, _ := strings.Cut(rest, "</script>")
	if err := json.Unmarshal([]byte(text), &data); err != nil || data.Version != "v1.2.3" {
		t.Errorf("the data of the page: %v, %+v", err, data)
	}
}

func TestTextAndMarkdown(t *testing.T) {
	var text, markdown bytes.Buffer
	if err := sample().Text(&text); err != nil {
		t.Fatal(err)
	}
	if err := sample().Markdown(&markdown); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"v1.2.3", "12.0 ms", "beside: docker exec", "400 (inside)", "≤ 12 MiB", "A note."} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text has no %q:\n%s", want, text.String())
		}
	}
	for _, want := range []string{"| `true` in a sandbox | 12.0 ms | 11.0–13.0 ms | 14.0 ms | docker exec | 62.0 ms | 64.0 ms | 0.194 | 0.219 | ≤ 0.1 × | **no** |", "| memory | 8 MiB |", "| rate | 100 | inside | 400 |  | ≥ 0.6 × | **no** |", "| without a target | 1 % |  |  |  |  |  |"} {
		if !strings.Contains(markdown.String(), want) {
			t.Errorf("the table has no %q:\n%s", want, markdown.String())
		}
	}
}
