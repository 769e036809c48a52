package database

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestLibcIsTheOneSQLiteWasMadeFor guards against an update of modernc.org/libc
// alone: the database corrupts memory with any other version than its own.
func TestLibcIsTheOneSQLiteWasMadeFor(t *testing.T) {
	type module struct{ Version, GoMod string }
	look := func(path string) (m module) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-json", path).Output()
		if err != nil {
			t.Fatalf("go list %s: %v", path, err)
		}
		if err := json.Unmarshal(out, &m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	mod, err := os.ReadFile(look("modernc.org/sqlite").GoMod)
	if err != nil {
		t.Fatal(err)
	}
	wants := regexp.MustCompile(`(?m)^\s*(?:require\s+)?modernc\.org/libc\s+(\S+)`).FindSubmatch(mod)
	if wants == nil {
		t.Fatal("modernc.org/sqlite's go.mod does not name modernc.org/libc any more")
	}
	if got := look("modernc.org/libc").Version; !strings.EqualFold(got, string(wants[1])) {
		t.Errorf("modernc.org/libc is %s, but modernc.org/sqlite wants exactly %s", got, wants[1])
	}
}
