package saved_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/driver/gvisor/agentimage"
	"github.com/modbox/modbox/internal/driver/gvisor/platform"
	"github.com/modbox/modbox/internal/driver/gvisor/saved"
	"github.com/modbox/modbox/internal/sandbox"
)

// checkpoint returns a directory with a complete checkpoint.
func checkpoint(t *testing.T, m saved.Manifest) string {
	t.Helper()
	dir := t.TempDir()
	files, err := saved.Create(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if _, err := f.WriteString("content of " + filepath.Base(f.Name())); err != nil {
			t.Fatal(err)
		}
	}
	files.Close()
	if m.Sums, err = saved.Sums(t.Context(), dir, true); err != nil {
		t.Fatal(err)
	}
	if err := saved.WriteManifest(dir, m); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestOnlyACompleteCheckpointOpens changes a file's size, makes it a link, and removes it.
func TestOnlyACompleteCheckpointOpens(t *testing.T) {
	for name, change := range map[string]func(file string) error{
		"Whole":   func(string) error { return nil },
		"Shorter": func(file string) error { return os.Truncate(file, 1) },
		"Missing": os.Remove,
		"Link": func(file string) error {
			if err := os.Rename(file, file+".real"); err != nil {
				return err
			}
			return os.Symlink(file+".real", file)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := checkpoint(t, saved.Manifest{Format: saved.Format})
			if err := change(filepath.Join(dir, "pages.img")); err != nil {
				t.Fatal(err)
			}
			_, files, err := saved.Open(dir)
			files.Close()
			if whole := name == "Whole"; (err == nil) != whole || err != nil && sandbox.CodeOf(err) != sandbox.NotFound {
				t.Errorf("Open = %v", err)
			}
		})
	}
}

// TestCanRestore checks each requirement of a checkpoint.
func TestCanRestore(t *testing.T) {
	agents := agentimage.Dir(t.TempDir())
	agent, err := agents.Make("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	host := saved.Host{GVisor: "v1", CPU: saved.CPU{Arch: "amd64", Flags: []string{"a", "b"}, CacheLine: 64}, Agents: agents}
	for want, change := range map[string]func(*saved.Manifest){
		"":                      func(*saved.Manifest) {},
		"its format is 6":       func(m *saved.Manifest) { m.Format = 6 },
		"gVisor's platform kvm": func(m *saved.Manifest) { m.Format, m.Platform = saved.FormatPlatform, platform.KVM },
		"it was made by gVisor": func(m *saved.Manifest) { m.GVisor = "v0" },
		"an unknown version":    func(m *saved.Manifest) { m.GVisor = "" },
		"it was made on arm64":  func(m *saved.Manifest) { m.CPU.Arch = "arm64" },
		"processor lacks c":     func(m *saved.Manifest) { m.CPU.Flags = []string{"a", "c"} },
		"cache lines of 32":     func(m *saved.Manifest) { m.CPU.CacheLine = 32 },
		"it names no agent":     func(m *saved.Manifest) { m.Agent = "../" + m.Agent },
		"is not on this host":   func(m *saved.Manifest) { m.Agent = "0" + m.Agent },
	} {
		m := saved.Manifest{Format: saved.Format, GVisor: "v1", CPU: host.CPU, Agent: filepath.Base(agent)}
		m.CPU.Flags = slices.Clone(m.CPU.Flags)
		change(&m)
		err := host.CanRestore(m)
		if want == "" && err != nil || want != "" && (sandbox.CodeOf(err) != sandbox.Unsupported || !strings.Contains(err.Error(), want)) {
			t.Errorf("CanRestore = %v, want %q", err, want)
		}
	}
	m := saved.Manifest{Format: saved.FormatPlatform, GVisor: "v1", CPU: host.CPU, Agent: filepath.Base(agent), Platform: platform.KVM}
	host.Unsure = true
	if err := host.CanRestore(m); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("CanRestore on a host where kvm may work later = %v, want Unavailable", err)
	}
	host.KVM = true
	if err := host.CanRestore(m); err != nil {
		t.Errorf("CanRestore on a host with kvm = %v", err)
	}
}
