package prepare

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"strings"
	"sync"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/workbox"
)

var (
	// pipPackage is a name with or without extras, and perhaps a version or the beginning of one: no
	// option, address or path.
	pipPackage = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?(\[[A-Za-z0-9._-]+(,[A-Za-z0-9._-]+)*\])?(==[A-Za-z0-9][A-Za-z0-9.!+_-]*(\.\*)?)?$`)
	})
	// pipArchive matches what pip would take for the name of a file.
	pipArchive = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)\.(whl|zip|tar|tgz|tbz|txz|tlz|tar\.(gz|bz2|xz|lz|lzma))$`)
	})
	// pipUnreachable matches what pip says when the index does not answer. Its last line then is that
	// there is no such package.
	pipUnreachable = regexp.MustCompile(`(?i)name resolution|name or service not known|failed to establish a new connection|connection refused|connecttimeout|` +
		`read timed out|newconnectionerror|network is unreachable|certificate verify failed`)
	pipNoPackage = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`No matching distribution found for (\S+)`) })
)

// checkPIP describes the mistake in the name of a Python package; "" for nothing.
func checkPIP(s string) string {
	switch {
	case len(s) > sandbox.PackageNameMax:
		return fmt.Sprintf("has more than %d characters", sandbox.PackageNameMax)
	case !pipPackage().MatchString(s) || pipArchive().MatchString(s):
		return "is not a Python package as in requests, requests==2.32.3 or name[extra]==1.2.*"
	}
	return ""
}

// pipEnv is the environment of pip. Debian's Python, and others, reserve their directory of packages
// for the system (PEP 668); what root installs with pip goes to /usr/local, where it replaces no file
// of the system and where every python3 of every user finds it, which a virtual environment would not
// give them. Versions of pip that do not know an option ignore its variable.
func pipEnv(index string) map[string]string {
	env := maps.Clone(quiet)
	maps.Copy(env, map[string]string{
		"PIP_BREAK_SYSTEM_PACKAGES": "1", "PIP_ROOT_USER_ACTION": "ignore", "PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1",
		"PIP_NO_CACHE_DIR": "1", "PIP_PROGRESS_BAR": "off", "PIP_RETRIES": "2",
	})
	if index != "" {
		env["PIP_INDEX_URL"] = index
		if at, err := url.Parse(index); err == nil && at.Scheme == "http" {
			env["PIP_TRUSTED_HOST"] = at.Host
		}
	}
	return env
}

// installPIP installs Python packages for all users of the image.
func installPIP(ctx context.Context, w *workbox.Box, names []string, index string, progress func(phase.Event)) error {
	progress(phase.Event{Phase: phase.Installing, Message: "Python packages: " + strings.Join(names, " ")})
	env := pipEnv(index)
	run := func(code sandbox.Code, args ...string) error {
		return w.Tool(ctx, "pip_packages", code, agentapi.Command{Argv: append([]string{"python3", "-m", "pip"}, args...), User: "0:0", Cwd: "/", Env: env})
	}
	err := run(sandbox.Invalid, "--version")
	if code := sandbox.CodeOf(err); code == sandbox.ProgramNotFound || code == sandbox.Invalid {
		return sandbox.InvalidField("pip_packages", "the image %s has no pip; with Debian, add python3-pip to apt_packages", w.Base().Ref())
	}
	if err != nil {
		return err
	}
	return explainPIP(run(sandbox.Invalid, append([]string{"install", "--"}, names...)...))
}

// explainPIP makes an error of pip say what the cause is.
func explainPIP(err error) error {
	var e *sandbox.Error
	if !errors.As(err, &e) || e.Code != sandbox.Invalid {
		return err
	}
	explained := *e
	if pipUnreachable.MatchString(e.Message) {
		explained.Code, explained.Message = sandbox.Unavailable, "the index of Python packages cannot be reached: "+e.Message
	} else if m := pipNoPackage().FindStringSubmatch(e.Message); m != nil {
		explained.Message = fmt.Sprintf("the index has no Python package %s, or no version of it for this Python: %s", m[1], e.Message)
	}
	return &explained
}
