package object_test

import (
	"strings"
	"testing"

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

func TestAzureServerThatEnds(t *testing.T) {
	server := objecttest.StartAzure(t)
	testCutUpload(t, server.URL("p"), server.Stop, server.Launch)
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
