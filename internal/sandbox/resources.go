package sandbox

import "fmt"

// Resources are a sandbox's limits. All three are always set and enforced.
type Resources struct {
	MemoryBytes int64
	CPUMilli    int64 // thousandths of a core
	DiskBytes   int64 // of its writable layer
}

// ShowBytes formats n in the notation of requests, with the largest unit that divides it.
func ShowBytes(n int64) string {
	for _, u := range []struct {
		size int64
		name string
	}{{1 << 30, "Gi"}, {1 << 20, "Mi"}, {1 << 10, "Ki"}} {
		if n%u.size == 0 && n != 0 {
			return fmt.Sprintf("%d%s", n/u.size, u.name)
		}
	}
	return fmt.Sprint(n)
}

// ShowMilli formats thousandths of a core in the notation of requests.
func ShowMilli(n int64) string { return fmt.Sprintf("%dm", n) }
