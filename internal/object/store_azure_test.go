package object_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"gocloud.dev/blob"
	_ "gocloud.dev/blob/azureblob" // for the objects themselves

	"github.com/modbox/modbox/internal/object"
	"github.com/modbox/modbox/internal/object/objecttest"
	"github.com/modbox/modbox/internal/sandbox"
)

func TestAzure(t *testing.T) {
	server := objecttest.StartAzure(t)
	container, err := blob.OpenBucket(t.Context(), server.URL(""))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = container.Close() })
	all(t, func(prefix string) bucket {
		return bucket{url: server.URL(prefix), raw: blob.PrefixedBucket(container, prefix+"/")}
	})
}

// TestAzureServerThatEnds ends the server in the middle of an upload, and sends the rest to the next.
func TestAzureServerThatEnds(t *testing.T) {
	server := objecttest.StartAzure(t)
	s, err := object.Open(t.Context(), server.URL("p"), object.Options{Create: true, Patience: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	data := random(12 * object.ChunkBytes)
	u, err := s.NewUpload(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = u.File(&killer{bytes.NewReader(data), 8 * object.ChunkBytes, server.Stop}, int64(len(data)))
	_, werr := u.Wait()
	u.Close()
	if sandbox.CodeOf(werr) != sandbox.Unavailable || !strings.Contains(werr.Error(), "azblob://bucket/p") {
		t.Fatalf("upload to a server that has ended: %v, %v, want code unavailable and the container", err, werr)
	}
	server.Launch()
	names, _ := upload(t, s, data)
	if got, err := download(t, s, names[0], len(data)); err != nil || !bytes.Equal(got, data) {
		t.Errorf("the file is another: %v", err)
	}
}

func TestAzureThatRefuses(t *testing.T) {
	server := objecttest.StartAzure(t)
	missing := strings.Replace(server.URL("p"), "//bucket/", "//missing/", 1)
	if _, err := object.Open(t.Context(), missing, object.Options{Create: true}); sandbox.CodeOf(err) != sandbox.NotFound || !strings.Contains(err.Error(), "azblob://missing/p") {
		t.Errorf("a container that does not exist: %v, want code not_found and the container", err)
	}
	if _, err := object.Open(t.Context(), server.URL("p"), object.Options{}); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("a container without a store: %v, want code not_found", err)
	}
	t.Setenv("AZURE_STORAGE_KEY", "d3Jvbmc=")
	if _, err := object.Open(t.Context(), server.URL("p"), object.Options{Create: true}); sandbox.CodeOf(err) != sandbox.Forbidden {
		t.Errorf("wrong credentials: %v, want code forbidden", err)
	}
}
