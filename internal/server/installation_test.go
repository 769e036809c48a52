package server

import (
	"cmp"
	"database/sql"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gvisor.dev/gvisor/pkg/cleanup"

	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/statedir"
)

// installationTest is a state and a run directory with a database that was used.
type installationTest struct {
	*testing.T
	cfg config.Config
	db  string
}

// newInstallation makes an installation; run "" is for a control server, whose state directory is its run directory.
func newInstallation(t *testing.T, run string) *installationTest {
	t.Helper()
	it := &installationTest{T: t, cfg: config.Config{StateDir: t.TempDir(), RunDir: run}}
	it.cfg.RunDir = cmp.Or(run, it.cfg.StateDir)
	it.db = filepath.Join(it.cfg.StateDir, statedir.DatabaseFile)
	it.use(false)
	return it
}

// open opens the database as a server does, writes to it, and closes it.
func (it *installationTest) open(accept bool) error {
	it.Helper()
	cu := cleanup.Make(func() {})
	defer cu.Clean()
	it.cfg.Secrets.KeyFile = filepath.Join(it.cfg.StateDir, "secret.key")
	keys, err := OpenKeys(it.cfg)
	if err != nil {
		it.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	d, err := openDisk(it.Context(), it.cfg, accept, log)
	if err != nil {
		it.Fatal(err)
	}
	p := parts{disk: d}
	if err := p.openStore(it.Context(), it.cfg, accept, keys, log, &cu); err != nil {
		return err
	}
	if _, _, err := p.store.Workspaces.EnsureDefaults(it.Context()); err != nil {
		it.Fatal(err)
	}
	return nil
}

func (it *installationTest) use(accept bool) {
	it.Helper()
	if err := it.open(accept); err != nil {
		it.Fatal(err)
	}
}

func (it *installationTest) refused(why string) {
	it.Helper()
	err := it.open(false)
	if err == nil || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), "--accept-database") {
		it.Fatalf("open = %v, want it refused: %s, and how to decide", err, why)
	}
}

// take returns a copy of the database and put puts it back.
func (it *installationTest) take() []byte {
	it.Helper()
	b, err := os.ReadFile(it.db)
	if err != nil {
		it.Fatal(err)
	}
	return b
}

func (it *installationTest) put(b []byte) {
	it.Helper()
	if err := os.WriteFile(it.db, b, 0o600); err != nil {
		it.Fatal(err)
	}
}

func TestAnOlderDatabaseIsRefused(t *testing.T) {
	for name, run := range map[string]string{"run directory": t.TempDir(), "no run directory": ""} {
		t.Run(name, func(t *testing.T) {
			it := newInstallation(t, run)
			old := it.take()
			it.use(false)
			right := it.take()
			it.put(old)
			it.refused("is older")
			it.refused("is older") // also on the second attempt
			it.put(right)
			it.use(false)
		})
	}
}

func TestAMissingDatabaseIsRefused(t *testing.T) {
	it := newInstallation(t, t.TempDir())
	right := it.take()
	if err := os.Remove(it.db); err != nil {
		t.Fatal(err)
	}
	it.refused("there is no database")
	if _, err := os.Stat(it.db); !os.IsNotExist(err) {
		t.Errorf("a start that was refused made a database: %v", err)
	}
	it.put(nil)
	it.refused("is of installation")
	it.put(right)
	it.use(false)
}

// An installation from before marks were introduced has none.
func TestAMissingDatabaseIsRefusedWithoutAMark(t *testing.T) {
	run := t.TempDir()
	it := &installationTest{T: t, cfg: config.Config{StateDir: t.TempDir(), RunDir: run}}
	it.db = filepath.Join(it.cfg.StateDir, statedir.DatabaseFile)
	box := filepath.Join(run, "boxes", "sb-1")
	if err := os.MkdirAll(box, 0o700); err != nil {
		t.Fatal(err)
	}
	it.refused("holds sandboxes")
	if err := os.RemoveAll(box); err != nil {
		t.Fatal(err)
	}
	it.use(false)
}

func TestADatabaseOfAnotherInstallation(t *testing.T) {
	it, other := newInstallation(t, t.TempDir()), newInstallation(t, t.TempDir())
	right := it.take()
	it.put(other.take())
	it.refused("is of installation")
	it.put(right)
	it.use(false)

	it.put(other.take())
	it.use(true)
	it.use(false) // once is enough
	accepted := it.take()
	it.put(right) // the database that does not fit now
	it.refused("is of installation")
	it.put(accepted)
	it.use(false)
}

func TestTheRunDirectoryOfAnotherServer(t *testing.T) {
	run := t.TempDir()
	first := newInstallation(t, run)
	if err := os.MkdirAll(filepath.Join(run, "boxes", "sb-1"), 0o700); err != nil {
		t.Fatal(err)
	}
	second := &installationTest{T: t, cfg: config.Config{StateDir: t.TempDir(), RunDir: run}}
	second.db = filepath.Join(second.cfg.StateDir, statedir.DatabaseFile)
	for _, accept := range []bool{false, true} {
		if err := second.open(accept); err == nil || !strings.Contains(err.Error(), first.cfg.StateDir) || !strings.Contains(err.Error(), "--run-dir") {
			t.Errorf("open with accept %v = %v, want it refused, naming %s", accept, err, first.cfg.StateDir)
		}
	}
	first.use(false)
	if err := os.RemoveAll(filepath.Join(run, "boxes", "sb-1")); err != nil {
		t.Fatal(err)
	}
	second.use(false) // there is nothing to lose
}

// On a full disk dead layers are removed before the database is opened, but not if opening would be
// refused.
func TestDatabaseIsLookedAtBeforeAnythingIsRemoved(t *testing.T) {
	it := newInstallation(t, t.TempDir())
	old := it.take()
	it.use(false)
	right := it.take()
	if err := fitsInstallation(t.Context(), it.cfg); err != nil {
		t.Errorf("the right database: %v", err)
	}
	it.put(old)
	if err := fitsInstallation(t.Context(), it.cfg); err == nil || !strings.Contains(err.Error(), "is older") {
		t.Errorf("an older database: %v, want it refused", err)
	}
	if err := os.Remove(it.db); err != nil {
		t.Fatal(err)
	}
	if err := fitsInstallation(t.Context(), it.cfg); err == nil || !strings.Contains(err.Error(), "there is no database") {
		t.Errorf("no database: %v, want it refused", err)
	}
	it.put([]byte("what was never a database"))
	if err := fitsInstallation(t.Context(), it.cfg); err == nil {
		t.Error("a damaged database fits")
	}
	it.put(right)
	if err := fitsInstallation(t.Context(), it.cfg); err != nil {
		t.Errorf("the right database again: %v", err)
	}
	if shm, err := filepath.Glob(it.db + "-*"); err != nil || len(shm) > 0 {
		t.Errorf("files beside the database: %v, %v, want none made", shm, err)
	}
}

// A start corrects the sums of the use of quotas, which another program may have changed.
func TestAStartRecountsTheUseOfQuotas(t *testing.T) {
	it := newInstallation(t, t.TempDir())
	db, err := sql.Open("sqlite", it.db)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), "UPDATE quota_use SET sandboxes = 7"); err != nil {
		t.Fatal(err)
	}
	it.use(false)
	var most int
	if err := db.QueryRowContext(t.Context(), "SELECT max(sandboxes) FROM quota_use").Scan(&most); err != nil || most != 0 {
		t.Errorf("the database counts %d sandboxes, %v, want 0", most, err)
	}
}
