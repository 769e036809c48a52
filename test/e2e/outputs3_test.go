package e2e_test

import (
	"database/sql"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/object/objecttest"
	"github.com/modbox/modbox/test/testserver"
)

// TestOutputInS3 kills a server while it stores output of commands in a real S3 server. The next stores all of it, removes it with the executions, and
// reads it when the files are lost.
func TestOutputInS3(t *testing.T) {
	bucket := objecttest.Start(t)
	settings := []string{"--archive-url", bucket.URL("archive"), "--archive-output", "true"}
	s := testserver.StartSmall(t, settings...)
	sb := s.MustCreate(client.CreateOptions{Image: image})
	stored := func() []string { // streams whose first part, the last to be written, is there
		found, _ := filepath.Glob(bucket.Path("archive/output/*/*/*.00000"))
		for i := range found {
			found[i], _, _ = strings.Cut(filepath.Base(found[i]), ".")
		}
		slices.Sort(found)
		return found
	}
	want := map[string]int{} // bytes by stream
	for round := range 3 {
		before := len(stored())
		for i := range 6 {
			size := 1 + i*2_500_000 // up to four parts
			e, err := s.Executions.Start(t.Context(), sb.ID, client.Command{Argv: []string{"/bin/sh", "-c", fmt.Sprintf("head -c %d /dev/urandom", size)}}, client.ExecutionOptions{})
			if err != nil {
				t.Fatal(err)
			}
			want[e.Stdout.StreamID] = size
		}
		until(t, "some output is stored", func() bool { return len(stored()) > before+round })
		s.Kill()
		s.Launch()
	}
	ids := slices.Sorted(maps.Keys(want))
	db, err := sql.Open("sqlite", "file:"+filepath.Join(s.StateDir, "modbox.db")+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	until(t, "all output is stored, and recorded", func() bool { // a server that is killed between these stores it again, if it has the files
		var n int
		if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM executions WHERE stored_by <> ''").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == len(ids) && slices.Equal(stored(), ids)
	})

	s.Kill()
	streams := filepath.Join(s.StateDir, "streams")
	if err := os.Rename(streams, streams+".lost"); err != nil {
		t.Fatal(err)
	}
	s.Launch()
	for id, size := range want {
		r, err := s.Streams.Read(t.Context(), id, client.StreamOptions{Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		_ = r.Close()
		if err != nil || len(got) != size {
			t.Errorf("%d bytes of output, %v, want %d", len(got), err, size)
		}
		original, err := os.ReadFile(filepath.Join(streams+".lost", id))
		if err != nil || !strings.HasSuffix(string(original), string(got)) {
			t.Errorf("the output differs from the lost file: %v", err)
		}
	}

	s.Stop()
	s.SetArgs(append(settings, "--exec-max-kept", "1")...)
	s.Launch()
	until(t, "the output of deleted executions is removed", func() bool {
		left, _ := filepath.Glob(bucket.Path("archive/output/*/*/*"))
		return len(stored()) == 1 && len(left) <= 4
	})
}
