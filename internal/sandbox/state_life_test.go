package sandbox_test

import (
	"encoding/xml"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/modbox/modbox/internal/sandbox"
)

// life is the picture of the states, docs/pictures/life.svg.
type life struct {
	Arrows []struct {
		From string `xml:"data-from,attr"`
		To   string `xml:"data-to,attr"`
		Path string `xml:"d,attr"`
	} `xml:"path"`
	Boxes []struct {
		State string  `xml:"data-state,attr"`
		X     float64 `xml:"x,attr"`
		Y     float64 `xml:"y,attr"`
		W     float64 `xml:"width,attr"`
		H     float64 `xml:"height,attr"`
	} `xml:"rect"`
	Texts []struct {
		Class string  `xml:"class,attr"`
		X     float64 `xml:"x,attr"`
		Y     float64 `xml:"y,attr"`
		Text  string  `xml:",chardata"`
	} `xml:"text"`
}

// touches reports whether a point is on the border of the box of a state.
func (l life) touches(state string, x, y float64) bool {
	for _, b := range l.Boxes {
		if b.State == state {
			across, down := x == b.X || x == b.X+b.W, y == b.Y || y == b.Y+b.H
			return x >= b.X && x <= b.X+b.W && y >= b.Y && y <= b.Y+b.H && (across || down)
		}
	}
	return false
}

// within reports whether the picture has the name of a state in the state's box.
func (l life) within(state string) bool {
	for _, text := range l.Texts {
		for _, b := range l.Boxes {
			if text.Class == "state" && text.Text == state && b.State == state {
				return text.X > b.X && text.X < b.X+b.W && text.Y > b.Y && text.Y < b.Y+b.H
			}
		}
	}
	return false
}

// TestPictureOfStates keeps the picture equal to the table of transitions: it has each state and
// each transition, and nothing else.
func TestPictureOfStates(t *testing.T) {
	content, err := os.ReadFile("../../docs/pictures/life.svg")
	if err != nil {
		t.Fatal(err)
	}
	var picture life
	if err := xml.Unmarshal(content, &picture); err != nil {
		t.Fatal(err)
	}
	if got, want := len(picture.Boxes), len(sandbox.States); got != want {
		t.Errorf("the picture has %d boxes, want %d", got, want)
	}
	var got, want []string
	for _, from := range sandbox.States {
		if !picture.within(string(from)) {
			t.Errorf("the picture has no box with the state %s", from)
		}
		for _, to := range sandbox.States {
			if sandbox.CheckTransition(from, to) == nil {
				want = append(want, fmt.Sprint(from, " to ", to))
			}
		}
	}
	for _, arrow := range picture.Arrows {
		var x1, y1, x2, y2 float64
		if _, err := fmt.Sscanf(arrow.Path, "M%f %f L%f %f", &x1, &y1, &x2, &y2); err != nil {
			t.Fatalf("arrow %s: %v", arrow.Path, err)
		}
		if !picture.touches(arrow.From, x1, y1) || !picture.touches(arrow.To, x2, y2) {
			t.Errorf("the arrow from %s to %s is drawn elsewhere", arrow.From, arrow.To)
		}
		got = append(got, arrow.From+" to "+arrow.To)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the picture has the transitions\n%q, want\n%q", got, want)
	}
}
