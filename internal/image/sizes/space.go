package sizes

import (
	"fmt"
	"os"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/image/archive"
	"github.com/modbox/modbox/internal/image/oci"
	"github.com/modbox/modbox/internal/sandbox"
)

// fullDiskRetry is the advised pause before another pull on a full disk.
const fullDiskRetry = time.Minute

// Space is the disk space that an image may take.
type Space struct {
	Dir    string // of the store
	Layout archive.Layout
	// MaxDisk bounds all images; 0 is no limit. MinFree must stay free on the disk.
	MaxDisk, MinFree int64
}

// For returns the bytes that the layers of a manifest may have uncompressed. It refuses an
// image whose layers have more bytes than all images may take, or than the disk has free, before
// any of them is downloaded. The download refuses a layer that is larger than the manifest says.
//
// Errors: TooLarge; Unavailable while the disk is full.
func (r Space) For(m *v1.Manifest) (int64, error) {
	var packed, missing int64
	for _, l := range m.Layers {
		packed += l.Size
		if _, err := os.Stat(r.Layout.Blob(l.Digest)); err != nil {
			missing += l.Size
		}
	}
	if r.MaxDisk > 0 && packed > r.MaxDisk {
		return 0, sandbox.Errorf(sandbox.TooLarge, "the layers of the image are %s, and all images may take %s (images.max_disk)", showMiB(packed), showMiB(r.MaxDisk))
	}
	var st unix.Statfs_t
	if err := unix.Statfs(r.Dir, &st); err != nil {
		return 0, fmt.Errorf("free space of %s: %w", r.Dir, err)
	}
	free := int64(st.Bavail)*st.Bsize - r.MinFree
	if missing > free {
		e := sandbox.Errorf(sandbox.Unavailable, "the server's disk has not enough space for the image: its missing layers have %s, and %s may be used", showMiB(missing), showMiB(max(0, free)))
		e.RetryAfter = fullDiskRetry
		return 0, e
	}
	most := min(oci.MaxBytes, max(0, free))
	if r.MaxDisk > 0 {
		most = min(most, r.MaxDisk)
	}
	return most, nil
}

func showMiB(n int64) string { return fmt.Sprintf("%d MiB", (n+1<<20-1)>>20) }
