package chain

import (
	"slices"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func TestEnds(t *testing.T) {
	for _, tt := range []struct {
		sizes []int64
		want  []int
	}{
		{nil, nil},
		{[]int64{9}, nil},
		{[]int64{10}, []int{1}},
		{[]int64{4, 5, 1, 9}, []int{3}},                       // the last is the image's own
		{[]int64{29, 3, 14, 1}, []int{1}},                     // the layers after the first are small beside it
		{[]int64{48, 24, 64, 211, 6, 25}, []int{1, 3, 4}},     // of a distribution, tools, compilers, an interpreter
		{[]int64{10, 10, 20, 40, 80}, []int{1, 2, 3}},         // no more than three
		{[]int64{0, 0, 12, 0, 0, 12, 0}, []int{3, 6}},         // layers without files belong to the next chain
		{[]int64{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, []int{10}}, // small layers are one
	} {
		var layers []v1.Descriptor
		for _, size := range tt.sizes {
			layers = append(layers, v1.Descriptor{Size: size})
		}
		if got := ends(layers, 10); !slices.Equal(got, tt.want) {
			t.Errorf("layers of %v: chains end after %v, want %v", tt.sizes, got, tt.want)
		}
		for n := range layers { // an image of the lowest layers has the same chains
			if got := ends(layers[:n], 10); !slices.Equal(got, tt.want[:len(got)]) {
				t.Errorf("chains of the first %d layers of %v end after layers %v; chains of all layers end after %v", n, tt.sizes, got, tt.want)
			}
		}
	}
}

// TestNameOfWork: images that promise the same layers and have others do not wait for each other.
func TestNameOfWork(t *testing.T) {
	hash := func(n string) v1.Hash { return v1.Hash{Algorithm: "sha256", Hex: n} }
	same := []v1.Descriptor{{Digest: hash("x")}, {Digest: hash("y")}}
	if name(hash("a"), same) == name(hash("a"), same[:1]) || name(hash("a"), same) == name(hash("b"), same) || name(hash("a"), same[:1]) == name(hash("a"), same[1:]) {
		t.Error("different works have the same name")
	}
}

// TestID compares with what OCI's specification says: the ID of one layer is its diff ID, and of more the digest of the ID of
// the lower layers, a space and the last diff ID.
func TestID(t *testing.T) {
	hash := func(n string) v1.Hash { return v1.Hash{Algorithm: "sha256", Hex: n} }
	for _, tt := range []struct {
		diffIDs []v1.Hash
		want    string
	}{
		{[]v1.Hash{hash("a")}, "a"},
		{[]v1.Hash{hash("a"), hash("b")}, "970a948bffa8de94d6e22d747ba8c95030e6e546909f98f54e99a13005e173a8"},
		{[]v1.Hash{hash("a"), hash("b"), hash("c")}, "dee159b33409cefa3f6eda71539f006014283e9d9130c18a1dea7bd8a33c9b1b"},
	} {
		if got := id(tt.diffIDs); got != hash(tt.want) {
			t.Errorf("the chain ID of %v is %v, want %s", tt.diffIDs, got, tt.want)
		}
	}
}
