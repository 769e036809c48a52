package base

import (
	"cmp"
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Profile is a server under a name, with what commands use there.
type Profile struct {
	URL string `json:"url"`
	// Workspace is the workspace to act in; "" is the token's workspace.
	Workspace string `json:"workspace,omitempty"`
	// Token is an API token; "" is the login to the server.
	Token string `json:"token,omitempty"`
}

var profileName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`) })

// CheckProfileName returns nil for a string that can name a profile.
func CheckProfileName(name string) error {
	if !profileName().MatchString(name) {
		return UsageError("%q cannot name a profile: names have 1 to 64 letters, digits, dots, dashes and underscores", name)
	}
	return nil
}

// chosenProfile is the profile of an invocation.
type chosenProfile struct {
	Profile

	// name is "" if there is none. By --profile or MODBOX_PROFILE it is named: the token and the workspace of
	// the environment, which may be for another server, do not count then.
	name  string
	named bool
	err   error // it does not exist
}

// chosen returns the profile that --profile or MODBOX_PROFILE names, or else the current profile. There is none
// if a flag or variable names the server itself, or if a token is given, which must not go to the server of an
// earlier choice.
func (env *Env) chosen() chosenProfile {
	env.readProfile.Do(func() {
		p := &env.profile
		p.name = env.ProfileName
		if p.name == "" && cmp.Or(env.URL, env.Getenv("MODBOX_URL")) == "" {
			p.name = env.Getenv("MODBOX_PROFILE")
		}
		kept := env.StoredCredentials()
		if p.named = p.name != ""; !p.named {
			if env.givenToken() != "" || cmp.Or(env.URL, env.Getenv("MODBOX_URL")) != "" {
				return
			}
			p.name = kept.Profile
		}
		var known bool
		if p.Profile, known = kept.Profiles[p.name]; known {
			return
		}
		if p.named {
			p.err = unknownProfile(p.name, kept)
		}
		p.name = ""
	})
	return env.profile
}

func unknownProfile(name string, kept Credentials) error {
	names := slices.Sorted(maps.Keys(kept.Profiles))
	return UsageError("there is no profile %q; there is: %s", name, cmp.Or(strings.Join(names, ", "), "none, \"modbox profile add\" makes one"))
}

// CurrentProfile returns the name of the profile that the command uses; "" if there is none.
func (env *Env) CurrentProfile() string { return env.chosen().name }

// AddProfile stores a profile, and makes it current if there is none or use is set. Errors: when the name is
// taken, unless replace is set.
func (env *Env) AddProfile(ctx context.Context, name string, p Profile, replace, use bool) error {
	if err := CheckProfileName(name); err != nil {
		return err
	}
	return env.changeCredentials(ctx, func(c *Credentials) error {
		if _, taken := c.Profiles[name]; taken && !replace {
			return UsageError("there is a profile %q already; --replace replaces it", name)
		}
		if c.Profiles == nil {
			c.Profiles = map[string]Profile{}
		}
		c.Profiles[name] = p
		if use {
			c.Profile = name
		}
		return nil
	})
}

// UseProfile makes a profile current; "" makes none current.
func (env *Env) UseProfile(ctx context.Context, name string) error {
	return env.changeCredentials(ctx, func(c *Credentials) error {
		if _, known := c.Profiles[name]; name != "" && !known {
			return unknownProfile(name, *c)
		}
		c.Profile = name
		return nil
	})
}

// RemoveProfiles removes profiles, or none if one of them does not exist.
func (env *Env) RemoveProfiles(ctx context.Context, names []string) error {
	return env.changeCredentials(ctx, func(c *Credentials) error {
		for _, name := range names {
			if _, known := c.Profiles[name]; !known {
				return unknownProfile(name, *c)
			}
			delete(c.Profiles, name)
			if c.Profile == name {
				c.Profile = ""
			}
		}
		return nil
	})
}
