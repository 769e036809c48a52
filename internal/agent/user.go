package agent

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	// maxDatabaseLines bounds reading /etc/passwd and /etc/group.
	maxDatabaseLines = 100_000
	// maxGroups is the kernel's limit.
	maxGroups = 65_536
)

// account is the user that a process runs as.
type account struct {
	name     string // "" when the user database does not have it
	uid, gid uint32
	groups   []uint32 // supplementary
	home     string
	shell    string
}

// lookupAccount resolves "name", "uid", "name:group" or "uid:gid" with the user database below
// root; "" is root. Numbers need no entry, names do.
func lookupAccount(root, spec string) (account, error) {
	if spec == "" {
		spec = "0"
	}
	user, group, hasGroup := strings.Cut(spec, ":")
	acc, err := lookupUser(root, user)
	if err != nil {
		return account{}, err
	}
	groups, err := readDatabase(filepath.Join(root, "etc/group"), 4)
	if err != nil {
		return account{}, err
	}
	if hasGroup && group != "" {
		gid, err := lookupGroup(groups, group)
		if err != nil {
			return account{}, err
		}
		acc.gid = gid
	}
	acc.groups = []uint32{}
	for _, g := range groups {
		gid, err := parseNumber(g[2])
		if err != nil || gid == acc.gid || acc.name == "" || len(acc.groups) >= maxGroups {
			continue
		}
		if slices.Contains(strings.Split(g[3], ","), acc.name) {
			acc.groups = append(acc.groups, gid)
		}
	}
	return acc, nil
}

func lookupUser(root, user string) (account, error) {
	users, err := readDatabase(filepath.Join(root, "etc/passwd"), 7)
	if err != nil {
		return account{}, err
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
		return account{name: u[0], uid: uid, gid: gid, home: u[5], shell: u[6]}, nil
	}
	switch {
	case notNumber == nil && id == 0:
		return account{name: "root", home: "/root"}, nil
	case notNumber == nil:
		return account{uid: id, gid: 0, home: "/"}, nil
	case user == "root":
		return account{name: "root", home: "/root"}, nil
	default:
		return account{}, invalid("the sandbox has no user %q", user)
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
	return 0, invalid("the sandbox has no group %q", group)
}

func parseNumber(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err
}

// readDatabase returns the fields of every line that has at least n. A file that does not exist or
// is not a regular file counts as empty.
func readDatabase(path string, n int) ([][]string, error) {
	f, err := openRegular(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotRegular) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var lines [][]string
	s := bufio.NewScanner(f)
	for s.Scan() && len(lines) < maxDatabaseLines {
		line := s.Text()
		if strings.HasPrefix(line, "#") {
			continue
		}
		if fields := strings.Split(line, ":"); len(fields) >= n {
			lines = append(lines, fields)
		}
	}
	return lines, s.Err()
}

// sameUser reports whether this process already runs as the account.
func (a account) sameUser() bool {
	return os.Geteuid() == int(a.uid) && os.Getegid() == int(a.gid)
}
