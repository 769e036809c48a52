package bench

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"
	"time"
)

//go:embed report.html
var page string

// The plots have this width, in units of the drawing, for times from lowest to highest.
const (
	plotWidth       = 400.0
	lowest, highest = 100 * time.Microsecond, 100 * time.Second
)

// plot is the drawing of the times of one side of a row, on a logarithmic scale.
type plot struct {
	Name, P50, Spread, P99       string
	Low, Box, BoxWidth, Mid, Top float64
	Dots                         []float64
	Ours                         bool
}

// position returns where a time is in a plot.
func position(d time.Duration) float64 {
	d = min(max(d, lowest), highest)
	part := math.Log(float64(d)/float64(lowest)) / math.Log(float64(highest)/float64(lowest))
	return math.Round(part*plotWidth*10) / 10
}

func plotOf(s Series, ours bool) plot {
	at := func(q float64) float64 { return position(Quantile(s.Samples, q)) }
	p := plot{
		Name: strings.ReplaceAll(s.Name, "`", ""), P50: Milliseconds(Quantile(s.Samples, .5)), Spread: s.Spread(), P99: Milliseconds(Quantile(s.Samples, .99)),
		Low: at(0), Box: at(.25), Mid: at(.5), Top: at(1), Ours: ours,
	}
	p.BoxWidth = max(at(.75)-p.Box, 1)
	for _, d := range s.Samples {
		p.Dots = append(p.Dots, position(d))
	}
	return p
}

// HTML renders the report as a page with plots, which needs no other file and no other host.
func (r *Report) HTML(w io.Writer) error {
	type row struct {
		What  string
		Plots []plot
	}
	type tick struct {
		At   float64
		Text string
	}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	view := struct {
		*Report
		Day, Memory string
		Lines       []row
		Ticks       []tick
		View        float64 // the width of a drawing, with a margin for the first and the last text
		Data        template.JS
	}{
		Report: r, Day: r.Date.Format(time.DateOnly), Memory: fmt.Sprintf("%.1f GiB", float64(r.Host.MemoryBytes)/(1<<30)), View: plotWidth + 48,
		// json.Marshal escapes what could end the script.
		Data: template.JS(data), //nolint:gosec // data of the report, in JSON
	}
	for d := lowest; d <= highest; d *= 10 {
		view.Ticks = append(view.Ticks, tick{position(d), d.String()})
	}
	for _, l := range r.Rows {
		made := row{What: strings.ReplaceAll(l.What, "`", ""), Plots: []plot{plotOf(l.Ours, true)}}
		if len(l.Peer.Samples) > 0 {
			made.Plots = append(made.Plots, plotOf(l.Peer, false))
		}
		view.Lines = append(view.Lines, made)
	}
	t, err := template.New("report").Parse(page)
	if err != nil {
		return err
	}
	return t.Execute(w, view)
}
