// Package reference parses and writes the names of images: names of this server, of registries, and
// names that workspaces give to images that they build.
package reference

import (
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"sync"

	ociname "github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/uuid"

	"github.com/modbox/modbox/internal/sandbox"
)

// BuiltinPrefix begins the names of the built-in images; it is optional in references.
const BuiltinPrefix = "modbox/"

// Local stands for the registry in references without a registry.
const Local = "modbox.invalid"

// dockerHub is the name of docker.io in the registry library.
const dockerHub = "index.docker.io"

// Reference is a parsed reference.
type Reference struct {
	// Names are the names that the reference may mean, the most likely first: as name:tag, or
	// as name alone when there is a digest.
	Names  []string
	Digest string
	// Remote is the image's name in a registry; nil when no registry is named.
	Remote ociname.Reference
}

// Parse parses the reference of an image as users write it. A name without a registry may
// mean an image of the default registry, unless that is "". Errors: Invalid, naming image.
func Parse(ref, defaultRegistry string) (Reference, error) {
	if h, err := v1.NewHash(ref); err == nil {
		return Reference{Digest: h.String()}, nil
	}
	if len(ref) > sandbox.ImageRefMax {
		return Reference{}, sandbox.InvalidField("image", "an image reference has at most %d characters", sandbox.ImageRefMax)
	}
	parsed, err := ociname.ParseReference(ref, ociname.WithDefaultRegistry(Local))
	if err != nil || !WellFormed(parsed) {
		return Reference{}, sandbox.InvalidField("image", "%.100q is not an image reference like modbox/code-exec:latest", ref)
	}
	var out Reference
	if parsed.Context().RegistryStr() == Local {
		repository := parsed.Context().RepositoryStr()
		out.Names = []string{repository}
		if !strings.Contains(repository, "/") {
			out.Names = append(out.Names, BuiltinPrefix+repository)
		}
		// Names of built-in images are not for registries.
		if defaultRegistry == "" || strings.HasPrefix(repository, BuiltinPrefix) {
			return out.identified(parsed), nil
		}
		ref = defaultRegistry + "/" + ref
	}
	if out.Remote, err = ociname.ParseReference(ref); err != nil {
		return Reference{}, sandbox.InvalidField("image", "%.100q is not an image reference like modbox/code-exec:latest", ref)
	}
	out.Names = append(out.Names, RepositoryName(out.Remote))
	return out.identified(parsed), nil
}

// Forms of repositories and tags, by the specification of registries. The library's own
// check accepts more, such as ../../x.
var (
	repoForm = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$`)
	})
	tagForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\w[\w.-]{0,127}$`) })
)

// WellFormed reports whether a parsed reference follows the specification of registries.
func WellFormed(ref ociname.Reference) bool {
	if tag, ok := ref.(ociname.Tag); ok && !tagForm().MatchString(tag.TagStr()) {
		return false
	}
	repo := ref.Context()
	return IsHost(repo.RegistryStr()) && repoForm().MatchString(repo.RepositoryStr())
}

// identified returns r with the tag or digest of a reference.
func (r Reference) identified(parsed ociname.Reference) Reference {
	if d, ok := parsed.(ociname.Digest); ok {
		r.Digest = d.DigestStr()
		return r
	}
	for i := range r.Names {
		r.Names[i] += ":" + parsed.Identifier()
	}
	return r
}

// RepositoryName returns the name of a registry's repository as people write it.
func RepositoryName(ref ociname.Reference) string {
	registry := ref.Context().RegistryStr()
	if registry == dockerHub {
		registry = "docker.io"
	}
	return registry + "/" + ref.Context().RepositoryStr()
}

// Identifier returns :tag or @digest.
func Identifier(ref ociname.Reference) string {
	if _, ok := ref.(ociname.Digest); ok {
		return "@" + ref.Identifier()
	}
	return ":" + ref.Identifier()
}

// BuiltName returns the name and tag under which a workspace has an image that it
// builds as ref: name, name:tag, or either with a registry before it, to be pushed
// there. Errors: Invalid, naming tag.
func BuiltName(ref string) (name, tag string, err error) {
	parsed, err := ociname.NewTag(ref, ociname.WithDefaultRegistry(Local))
	if err != nil || !WellFormed(parsed) || len(ref) > sandbox.ImageRefMax {
		return "", "", sandbox.InvalidField("tag", "%.100q is not a name for an image like app, app:v1 or registry.example.com/team/app:v1", ref)
	}
	name = parsed.RepositoryStr()
	if parsed.RegistryStr() != Local {
		name = RepositoryName(parsed)
	}
	if strings.HasPrefix(name, BuiltinPrefix) {
		return "", "", sandbox.InvalidField("tag", "names that begin with %s are reserved for built-in images", BuiltinPrefix)
	}
	return name, parsed.TagStr(), nil
}

// NamesRegistry reports whether a name, as [BuiltName] returns it, includes a registry.
func NamesRegistry(name string) bool {
	repo, err := ociname.NewRepository(name, ociname.WithDefaultRegistry(Local))
	return err == nil && repo.RegistryStr() != Local
}

// CheckLocal refuses an invalid name or tag of an image of this store.
func CheckLocal(repository, tag string) error {
	parsed, err := ociname.NewTag(repository+":"+tag, ociname.WithDefaultRegistry(Local))
	if err != nil || parsed.RegistryStr() != Local || parsed.RepositoryStr() != repository {
		return sandbox.InvalidField("name", "%.100q with tag %.100q is not an image name like modbox/base with tag latest", repository, tag)
	}
	return nil
}

// imageNamespace makes image ids from references, the same on every machine.
var imageNamespace = uuid.MustParse("0b2c7a3e-4f1d-5c58-9a55-6d0d1f0e7c21")

// ImageID returns the id of a reference. It survives rebuilds and reinstallation.
func ImageID(ref string) sandbox.ImageID {
	return sandbox.ImageID(uuid.NewSHA1(imageNamespace, []byte(ref)).String())
}

// registryHost is the syntax of hosts in the specification of references. Libraries for
// references accept more, such as "..".
var registryHost = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:[[:alnum:]]+(?:-+[[:alnum:]]+)*(?:\.[[:alnum:]]+(?:-+[[:alnum:]]+)*)*|\[([[:xdigit:]:]+)\])(?::([0-9]+))?$`)
})

// IsHost reports whether a registry may be at a host, with a port or without.
func IsHost(host string) bool {
	parts := registryHost().FindStringSubmatch(host)
	if parts == nil {
		return false
	}
	if _, err := netip.ParseAddr(parts[1]); parts[1] != "" && err != nil {
		return false
	}
	port, err := strconv.ParseUint(parts[2], 10, 16)
	return parts[2] == "" || err == nil && port > 0
}
