package rootdir

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/modbox/modbox/internal/agent/answer"
)

// maxGroups is the kernel's limit.
const maxGroups = 65_536

// Account is the user that a process runs as.
type Account struct {
	Name     string // "" when the user database does not have it
	UID, GID uint32
	Groups   []uint32 // supplementary
	Home     string
	Shell    string
}

// Account resolves "name", "uid", "name:group" or "uid:gid" with the user database; "" is root. Numbers
// need no entry, names do. Errors: [agentapi.CodeInvalid] for a name without an entry.
func (r Root) Account(spec string) (Account, error) {
	if spec == "" {
		spec = "0"
	}
	user, group, hasGroup := strings.Cut(spec, ":")
	acc, err := r.user(user)
	if err != nil {
		return Account{}, err
	}
	groups, err := readDatabase(r.Path("/etc/group"), 4)
	if err != nil {
		return Account{}, err
	}
	if hasGroup && group != "" {
		gid, err := lookupGroup(groups, group)
		if err != nil {
			return Account{}, err
		}
		acc.GID = gid
	}
	acc.Groups = []uint32{}
	for _, g := range groups {
		gid, err := parseNumber(g[2])
		if err != nil || gid == acc.GID || acc.Name == "" || len(acc.Groups) >= maxGroups {
			continue
		}
		if slices.Contains(strings.Split(g[3], ","), acc.Name) {
			acc.Groups = append(acc.Groups, gid)
		}
	}
	return acc, nil
}

func (r Root) user(user string) (Account, error) {
	users, err := readDatabase(r.Path("/etc/passwd"), 7)
	if err != nil {
		return Account{}, err
	}
	id, notNumber := parseNumber(user)
	for _, u := range users {
		uid, err := parseNumber(u[2])
		if err != nil || u[0] != user && (notNumber != nil || uid != id) {
			continue
		}
		gid, err := parseNumber(u[3])
		if err != nil {
			continue
		}
		return Account{Name: u[0], UID: uid, GID: gid, Home: u[5], Shell: u[6]}, nil
	}
	switch {
	case notNumber == nil && id == 0:
		return Account{Name: "root", Home: "/root"}, nil
	case notNumber == nil:
		return Account{UID: id, GID: 0, Home: "/"}, nil
	case user == "root":
		return Account{Name: "root", Home: "/root"}, nil
	default:
		return Account{}, answer.Invalid("the sandbox has no user %q", user)
	}
}

func lookupGroup(groups [][]string, group string) (uint32, error) {
	if gid, err := parseNumber(group); err == nil {
		return gid, nil
	}
	for _, g := range groups {
		if g[0] == group {
			return parseNumber(g[2])
		}
	}
	return 0, answer.Invalid("the sandbox has no group %q", group)
}

func parseNumber(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err
}

// own are the ids of this process, which it does not change. Each system call costs 10 µs in gVisor.
var own = Account{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}

// Current reports whether this process already runs as the account.
func (a Account) Current() bool {
	return own.UID == a.UID && own.GID == a.GID
}
