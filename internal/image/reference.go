package image

import (
	"regexp"
	"strings"

	ociname "github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/modbox/modbox/internal/sandbox"
)

// ownPrefix begins the names of the built-in images; it may be left out.
const ownPrefix = "modbox/"

// localRegistry stands for the registry of references that name none.
const localRegistry = "modbox.invalid"

// dockerHub is how the registry library writes docker.io.
const dockerHub = "index.docker.io"

// reference is a parsed reference: the names it may mean, the more likely first,
// as name:tag, or as name alone when there is a digest.
type reference struct {
	names  []string
	digest string
	// remote is where a registry has it; nil when no registry does.
	remote ociname.Reference
}

func (s *Store) parseRef(ref string) (reference, error) {
	if h, err := v1.NewHash(ref); err == nil {
		return reference{digest: h.String()}, nil
	}
	if len(ref) > sandbox.ImageRefMax {
		return reference{}, sandbox.InvalidField("image", "an image reference has at most %d characters", sandbox.ImageRefMax)
	}
	parsed, err := ociname.ParseReference(ref, ociname.WithDefaultRegistry(localRegistry))
	if err != nil || !wellFormed(parsed) {
		return reference{}, sandbox.InvalidField("image", "%.100q is not an image reference like modbox/code-exec:latest", ref)
	}
	var out reference
	if parsed.Context().RegistryStr() == localRegistry {
		repository := parsed.Context().RepositoryStr()
		out.names = []string{repository}
		if !strings.Contains(repository, "/") {
			out.names = append(out.names, ownPrefix+repository)
		}
		// Names like the built-in ones' are nobody else's.
		if s.defaultRegistry == "" || strings.HasPrefix(repository, ownPrefix) {
			return out.identified(parsed), nil
		}
		ref = s.defaultRegistry + "/" + ref
	}
	if out.remote, err = ociname.ParseReference(ref); err != nil {
		return reference{}, sandbox.InvalidField("image", "%.100q is not an image reference like modbox/code-exec:latest", ref)
	}
	out.names = append(out.names, remoteName(out.remote))
	return out.identified(parsed), nil
}

// What the specification of registries lets repositories and tags be. The
// library's own check lets pass more, such as ../../x.
var (
	repoForm = regexp.MustCompile(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$`)
	tagForm  = regexp.MustCompile(`^\w[\w.-]{0,127}$`)
)

// wellFormed reports whether a registry may have what a parsed reference names.
func wellFormed(ref ociname.Reference) bool {
	if tag, ok := ref.(ociname.Tag); ok && !tagForm.MatchString(tag.TagStr()) {
		return false
	}
	repo := ref.Context()
	return sandbox.IsRegistryHost(repo.RegistryStr()) && repoForm.MatchString(repo.RepositoryStr())
}

// identified returns r with the tag or digest of a reference.
func (r reference) identified(parsed ociname.Reference) reference {
	if d, ok := parsed.(ociname.Digest); ok {
		r.digest = d.DigestStr()
		return r
	}
	for i := range r.names {
		r.names[i] += ":" + parsed.Identifier()
	}
	return r
}

// remoteName returns the name of a registry's repository as people write it.
func remoteName(ref ociname.Reference) string {
	registry := ref.Context().RegistryStr()
	if registry == dockerHub {
		registry = "docker.io"
	}
	return registry + "/" + ref.Context().RepositoryStr()
}
