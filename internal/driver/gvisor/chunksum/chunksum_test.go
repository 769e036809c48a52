package chunksum_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"

	"github.com/modbox/modbox/internal/driver/gvisor/chunksum"
)

// content returns size bytes, which depend only on size.
func content(size int64) []byte {
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(size)}).Read(data)
	return data
}

// sizes are the interesting sizes around chunk boundaries.
var sizes = []int64{0, 1, chunksum.ChunkBytes - 1, chunksum.ChunkBytes, chunksum.ChunkBytes + 1, 5*chunksum.ChunkBytes + 17}

// both checks data in both ways and returns their results.
func both(t *testing.T, s chunksum.Sums, data []byte) map[string]error {
	t.Helper()
	read, err := io.ReadAll(iotest.HalfReader(s.Reader(bytes.NewReader(data))))
	if err == nil && !bytes.Equal(read, data) {
		t.Errorf("Reader returned %d bytes that differ from the %d that were read", len(read), len(data))
	}
	return map[string]error{"Verify": s.Verify(t.Context(), bytes.NewReader(data)), "Reader": err}
}

func sums(t *testing.T, data []byte) chunksum.Sums {
	t.Helper()
	s, err := chunksum.Of(t.Context(), bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatalf("Of: %v", err)
	}
	return s
}

func TestWholeFilesAreAccepted(t *testing.T) {
	for _, size := range sizes {
		data := content(size)
		for how, err := range both(t, sums(t, data), data) {
			if err != nil {
				t.Errorf("%s of %d bytes = %v", how, size, err)
			}
		}
	}
}

func TestDamageIsFound(t *testing.T) {
	for _, size := range sizes {
		data := content(size)
		s := sums(t, data)
		damaged := map[string][]byte{"longer": append(bytes.Clone(data), 0)}
		offsets := map[string]int64{"longer": size}
		if size > 0 {
			damaged["shorter"], offsets["shorter"] = data[:size-1], -1 // the two ways differ
			for name, at := range map[string]int64{"first": 0, "last": size - 1, "middle": size / 2} {
				flipped := bytes.Clone(data)
				flipped[at] ^= 1
				damaged[name], offsets[name] = flipped, at/chunksum.ChunkBytes*chunksum.ChunkBytes
			}
		}
		for name, data := range damaged {
			for how, err := range both(t, s, data) {
				var m *chunksum.Mismatch
				if !errors.As(err, &m) {
					t.Errorf("%s of %d bytes, %s: %v, want a Mismatch", how, size, name, err)
				} else if want := offsets[name]; want >= 0 && m.Offset != want {
					t.Errorf("%s of %d bytes, %s: damage at %d, want %d", how, size, name, m.Offset, want)
				}
			}
		}
	}
}

func TestDamagedSumsAreNoPanic(t *testing.T) {
	data := content(3 * chunksum.ChunkBytes)
	whole := sums(t, data)
	for name, s := range map[string]chunksum.Sums{
		"negative": {Size: -1},
		"huge":     {Size: 1 << 62, Digests: whole.Digests},
		"few":      {Size: whole.Size, Digests: whole.Digests[1:]},
		"none":     {Size: whole.Size},
		"many":     {Size: whole.Size - chunksum.ChunkBytes, Digests: whole.Digests},
	} {
		for how, err := range both(t, s, data) {
			if err == nil {
				t.Errorf("%s with %s digests succeeded", how, name)
			}
		}
	}
}

func TestEndedContextEndsTheReading(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	data := content(4 * chunksum.ChunkBytes)
	s := sums(t, data)
	cancel()
	if err := s.Verify(ctx, bytes.NewReader(data)); !errors.Is(err, context.Canceled) {
		t.Errorf("Verify after its context ended = %v, want the context's error", err)
	}
}

func TestErrorsOfTheFileAreNoDamage(t *testing.T) {
	broken := errors.New("broken")
	s := sums(t, content(2*chunksum.ChunkBytes))
	_, err := io.ReadAll(s.Reader(iotest.ErrReader(broken)))
	if !errors.Is(err, broken) {
		t.Errorf("Reader of a file that cannot be read = %v, want its error", err)
	}
}
