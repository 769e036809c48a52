package recipe

import (
	"bytes"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/sandbox"
)

// sha512Prefix begins an integrity value; npm's other hashes are weaker.
const sha512Prefix = "sha512-"

// npmPackage is a fetched and checked npm package.
type npmPackage struct {
	npmSpec
	tarball string // path of the .tgz
}

// fetchNPM downloads the npm packages of the recipe for this architecture with the host's npm
// client and its configuration, and checks them against the recipe.
func fetchNPM(ctx context.Context, job Job) ([]npmPackage, error) {
	var packages []npmPackage
	for _, spec := range job.Recipe.spec.NPM {
		if spec.Arch != "" && spec.Arch != runtime.GOARCH {
			continue
		}
		job.Progress(phase.Event{Phase: phase.Fetching, Message: spec.Package + " " + spec.Version})
		tarball, err := packNPM(ctx, spec, filepath.Join(job.Dir, fmt.Sprintf("npm-%d", len(packages))))
		if err != nil {
			return nil, err
		}
		packages = append(packages, npmPackage{npmSpec: spec, tarball: tarball})
	}
	return packages, nil
}

// packNPM downloads one package into dir and returns its checked tarball.
func packNPM(ctx context.Context, spec npmSpec, dir string) (string, error) {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return "", sandbox.Wrap(sandbox.Unavailable, err, "building this image needs npm; install the Debian package npm")
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", fmt.Errorf("fetch %s: %w", spec.Package, err)
	}
	id := spec.Package + "@" + spec.Version
	// The process must not outlive a killed server: see Debian.run.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, npm, "pack", id, "--silent", "--ignore-scripts", "--pack-destination", dir)
	cmd.Dir = dir
	cmd.Env = toolEnv(os.Environ())
	cmd.Stderr = &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return "", fmt.Errorf("fetch %s: %w", id, context.Cause(ctx))
		}
		said := strings.Join(strings.Fields(stderr.String()), " ")
		return "", sandbox.Wrap(sandbox.Unavailable, err, "npm could not fetch %s: %.500s", id, said)
	}
	found, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("fetch %s: npm left %d archives, not 1 (%v)", id, len(found), err) //nolint:errorlint // it may be nil
	}
	if err := checkIntegrity(found[0], spec.Integrity); err != nil {
		return "", fmt.Errorf("fetch %s: %w", id, err)
	}
	return found[0], nil
}

// checkIntegrity compares a file with an integrity value of the form "sha512-BASE64".
func checkIntegrity(file, want string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha512.New()
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	if got := sha512Prefix + base64.StdEncoding.EncodeToString(h.Sum(nil)); got != want {
		return fmt.Errorf("integrity is %s, the recipe says %s", got, want)
	}
	return nil
}
