package index

import (
	"crypto/sha256"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// chainKey begins the cache keys of chains, see package chain; other keys have no spaces.
const chainKey = "chain "

// ChainKey returns the CacheKey of a chain.
func ChainKey(id v1.Hash) string { return chainKey + id.String() }

// IsChain reports whether a record is a chain of layers. Only images over it need it: no user can name it, and it is
// removed with the last of them.
func (r *Record) IsChain() bool { return strings.HasPrefix(r.CacheKey, chainKey) }

// UUID returns the UUID of the EROFS of a record: of a chain's, so that no image has its digest.
func (r *Record) UUID() ([]byte, error) {
	if r.IsChain() {
		sum := sha256.Sum256([]byte(r.CacheKey))
		return sum[:], nil
	}
	return r.Config.Mark()
}

// Loose returns the digests of the chains that nothing needs except records for which held is true.
func (ix *Index) Loose(held func(digest string) bool) map[string]bool {
	below, loose := ix.Below(func(r *Record) bool { return !r.IsChain() || held(r.Digest) }), map[string]bool{}
	for i := range ix.Images {
		if r := &ix.Images[i]; r.IsChain() && !below[r.Digest] && !held(r.Digest) {
			loose[r.Digest] = true
		}
	}
	return loose
}

// file identifies a file as [Record.File] does.
type file struct {
	bytes int64
	time  time.Time
}

func (r *Record) fileOf() file { return file{r.SizeBytes, r.ModTime().UTC()} }

// linked adds the digests of chains to which an image that keep accepts is another link.
func (ix *Index) linked(below map[string]bool, keep func(*Record) bool) {
	var chains []*Record
	for i := range ix.Images {
		if r := &ix.Images[i]; r.IsChain() {
			chains = append(chains, r)
		}
	}
	if len(chains) == 0 {
		return
	}
	files := map[file]bool{}
	for i := range ix.Images {
		if r := &ix.Images[i]; !r.IsChain() && (keep == nil || keep(r)) {
			files[r.fileOf()] = true
		}
	}
	for _, r := range chains {
		if files[r.fileOf()] {
			below[r.Digest] = true
		}
	}
}

// chainOf returns the digest of the chain whose file a record has, or else the record's own.
func (ix *Index) chainOf(r *Record) string {
	for i := range ix.Images {
		if c := &ix.Images[i]; c.IsChain() && c.fileOf() == r.fileOf() {
			return c.Digest
		}
	}
	return r.Digest
}
