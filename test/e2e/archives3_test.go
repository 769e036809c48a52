package e2e_test

import (
	"testing"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/object/objecttest"
)

// TestArchiveInS3 archives a sandbox in a real S3 server, kills both, and resumes it with its file and its process.
func TestArchiveInS3(t *testing.T) {
	bucket := objecttest.Start(t)
	a := startArchivingAt(t, bucket.URL("archive"))
	a.pause(t)
	a.archive(t)
	a.Kill()
	a.Launch()
	bucket.Kill()
	resumed := make(chan error)
	go func() {
		_, err := a.Sandboxes.Resume(t.Context(), a.id, client.ResumeOptions{Memory: client.MemoryRequire})
		resumed <- err
	}()
	bucket.Launch()
	if err := <-resumed; err != nil {
		t.Fatalf("resume while the S3 server starts: %v", err)
	}
	a.goesOn(t, a.id)
	a.pause(t)
	a.archive(t) // over the blobs that are there
	a.goesOn(t, a.id)
}
