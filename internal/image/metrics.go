package image

import "github.com/modbox/modbox/internal/image/index"

// NewCollector returns the metrics of a store.
func NewCollector(s *Store) *index.Collector { return index.NewCollector(s.index) }
