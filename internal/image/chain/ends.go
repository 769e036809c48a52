package chain

import (
	"crypto/sha256"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/modbox/modbox/internal/image/rootfs"
)

const (
	// most bounds the chains of an image: each makes the lookup of a name in a sandbox slower, and snapshots and
	// builds lie over them.
	most = 3
	// Least is the default of [Maker.Least].
	Least = 16 << 20
)

// ends returns the numbers of the lowest layers that are a chain, in ascending order. A chain begins after the one
// before and ends with the layer that makes it large enough: compressed, its layers have the least number of bytes, and
// as many as all layers below. Only the layers of a chain decide where it ends, so that images with the same lowest
// layers have the same chains.
func ends(layers []v1.Descriptor, least int64) (list []int) {
	var own, below int64
	for i, l := range layers {
		if own += l.Size; own < max(least, below) {
			continue
		}
		below, own = below+own, 0
		if list = append(list, i+1); len(list) == most {
			break
		}
	}
	return list
}

// id returns OCI's chain ID of layers with these diff IDs.
func id(diffIDs []v1.Hash) v1.Hash {
	at := diffIDs[0]
	for _, next := range diffIDs[1:] {
		at = join(at, next)
	}
	return at
}

// name names the work on a chain that has these layers compressed.
func name(chainID v1.Hash, layers []v1.Descriptor) v1.Hash {
	for _, l := range layers {
		chainID = join(chainID, l.Digest)
	}
	return chainID
}

func join(a, b v1.Hash) v1.Hash {
	sum := sha256.New()
	sum.Write([]byte(a.String() + " " + b.String()))
	return rootfs.SHA256(sum)
}
