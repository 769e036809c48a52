package archive

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"unicode"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/modbox/modbox/internal/image/spec"
)

const (
	// stepsMax bounds the steps of an image that changed no file: an image may claim any number.
	stepsMax = 1000
	// createdByMax bounds an instruction, in characters.
	createdByMax = 1000
)

// History returns the steps of an image, lowest first, and the index in others of the image it was built on, which
// shares the most leading steps, or -1. It ignores others that it cannot read. A step has the instruction that the
// image claims it was made by.
func (l Layout) History(manifest v1.Hash, others []v1.Hash) (steps []spec.Layer, base int, err error) {
	m, err := l.Manifest(manifest)
	if err == nil {
		steps, err = l.steps(m)
	}
	if err != nil {
		return nil, -1, fmt.Errorf("layers of the image %s: %w", manifest, err)
	}
	base = -1
	most := 0
	for i, other := range others {
		lower, err := l.Manifest(other)
		if err != nil || len(lower.Layers) == 0 || !begins(m.Layers, lower.Layers, func(a, b v1.Descriptor) bool { return a.Digest == b.Digest }) {
			continue
		}
		below, err := l.steps(lower)
		if err == nil && len(below) > most && len(below) < len(steps) && begins(steps, below, sameStep) {
			base, most = i, len(below)
		}
	}
	for i := range most {
		steps[i].Base = true
	}
	return steps, base, nil
}

// sameStep ignores the times: a build that finds its steps in the cache keeps other times than the first.
func sameStep(a, b spec.Layer) bool { return a.Digest == b.Digest && a.CreatedBy == b.CreatedBy }

// begins reports whether a list begins with another.
func begins[T any](list, with []T, same func(T, T) bool) bool {
	return len(list) >= len(with) && slices.EqualFunc(list[:len(with)], with, same)
}

// steps returns the steps in the making of an image.
func (l Layout) steps(m *v1.Manifest) ([]spec.Layer, error) {
	f, err := os.Open(l.Blob(m.Config.Digest))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	config, err := v1.ParseConfigFile(f)
	if err != nil {
		return nil, err
	}
	return layersOf(m.Layers, config.History), nil
}

// layersOf combines layers with a history, which says of each step whether it made a layer. A history with
// another number of layers says nothing.
func layersOf(layers []v1.Descriptor, history []v1.History) []spec.Layer {
	made := 0
	for _, h := range history {
		if !h.EmptyLayer {
			made++
		}
	}
	if made != len(layers) {
		history = make([]v1.History, len(layers))
	}
	list := []spec.Layer{}
	empty := 0
	for _, h := range history {
		step := spec.Layer{CreatedBy: instruction(h.CreatedBy)}
		if t := h.Created.UTC(); t.Unix() > 0 && t.Year() <= 9999 { // JSON has no later years
			step.CreatedAt = t
		}
		if !h.EmptyLayer {
			step.Digest, step.SizeBytes = layers[0].Digest.String(), layers[0].Size
			layers = layers[1:]
		} else if empty++; empty > stepsMax {
			continue
		}
		list = append(list, step)
	}
	return list
}

// instruction makes an instruction of an image, which may be anything, a line of text.
func instruction(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) || r == unicode.ReplacementChar {
			return ' '
		}
		return r
	}, s)
	s = strings.Join(strings.Fields(s), " ")
	if list := []rune(s); len(list) > createdByMax {
		s = string(list[:createdByMax-1]) + "…"
	}
	return s
}
