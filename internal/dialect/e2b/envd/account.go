package envd

import (
	"context"
	"encoding/base64"
	"io"
	"path"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/modbox/modbox/internal/cache"
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// userDefault is the user of a request that names none, if the sandbox has it; rootUser otherwise.
	userDefault = "user"
	rootUser    = "root"
	// databaseMax bounds the bytes read of the files with users and groups.
	databaseMax = 64 << 10
	// databaseTime is the time after which the server reads these files again.
	databaseTime = 5 * time.Second
	databasesMax = 256
)

// account is a user of a sandbox.
type account struct {
	name string
	home string
}

// database has the users and groups of a sandbox.
type database struct {
	users  map[string]account
	owners map[uint32]string
	groups map[uint32]string
}

// accounts reads the users of sandboxes.
type accounts struct {
	calls *guest.Calls
	read  *cache.Cache[sandbox.ID, *database]
}

func newAccounts(calls *guest.Calls) (*accounts, error) {
	read, err := cache.New[sandbox.ID](cache.Options[*database]{Size: databasesMax, AfterWrite: databaseTime})
	return &accounts{calls: calls, read: read}, err
}

// close ends the work of the cache in the background.
func (a *accounts) close() { a.read.Close() }

// of returns the users and groups of the sandbox of a visit. A sandbox without the files has root alone.
func (a *accounts) of(ctx context.Context, v *visit) (*database, error) {
	if db, ok := a.read.Get(v.sb.ID); ok {
		return db, nil
	}
	return a.load(ctx, v)
}

func (a *accounts) load(ctx context.Context, v *visit) (*database, error) {
	db := &database{users: map[string]account{rootUser: {rootUser, "/root"}}, owners: map[uint32]string{0: rootUser}, groups: map[uint32]string{0: rootUser}}
	// Both at once: the first command of a sandbox waits for them.
	var passwd, group [][]string
	both, reading := errgroup.WithContext(ctx)
	both.Go(func() (err error) { passwd, err = a.lines(reading, v, "/etc/passwd", 7); return err })
	both.Go(func() (err error) { group, err = a.lines(reading, v, "/etc/group", 4); return err })
	if err := both.Wait(); err != nil {
		return nil, err
	}
	for _, f := range passwd {
		home := f[5]
		if !path.IsAbs(home) {
			home = "/"
		}
		db.users[f[0]] = account{f[0], path.Clean(home)}
		if uid, err := strconv.ParseUint(f[2], 10, 32); err == nil {
			db.owners[uint32(uid)] = f[0]
		}
	}
	for _, f := range group {
		if gid, err := strconv.ParseUint(f[2], 10, 32); err == nil {
			db.groups[uint32(gid)] = f[0]
		}
	}
	a.read.Set(v.sb.ID, db)
	return db, nil
}

// lines reads the lines of a file with that many fields; a missing file has none.
func (a *accounts) lines(ctx context.Context, v *visit, name string, fields int) ([][]string, error) {
	r, _, err := a.calls.ReadFile(ctx, v.caller, v.ref, name, 0, databaseMax)
	if err != nil {
		if code := sandbox.CodeOf(err); code == sandbox.FileNotFound || code == sandbox.Invalid || code == sandbox.Conflict {
			return nil, nil
		}
		return nil, err
	}
	defer r.Close()
	text, err := io.ReadAll(io.LimitReader(r, databaseMax))
	if err != nil {
		return nil, err
	}
	var out [][]string
	for line := range strings.Lines(strings.ToValidUTF8(string(text), "\uFFFD")) {
		if f := strings.Split(strings.TrimSuffix(line, "\n"), ":"); len(f) == fields {
			out = append(out, f)
		}
	}
	return out, nil
}

// user returns the account of a name; "" is the default account. Errors: Unauthenticated, as the
// clients expect it for an unknown name.
func (a *accounts) user(ctx context.Context, v *visit, name string) (account, *database, error) {
	db, err := a.of(ctx, v)
	if err != nil {
		return account{}, nil, err
	}
	if name == "" {
		if acc, ok := db.users[userDefault]; ok {
			return acc, db, nil
		}
		return db.users[rootUser], db, nil
	}
	acc, ok := db.users[name]
	if !ok { // it may have been added since
		if db, err = a.load(ctx, v); err != nil {
			return account{}, nil, err
		}
		acc, ok = db.users[name]
	}
	if !ok {
		return account{}, nil, sandbox.Errorf(sandbox.Unauthenticated, "invalid username: '%s'", sandbox.OneLine(name))
	}
	return acc, db, nil
}

// basicUser returns the name in the Authorization header of a call, "" without one.
func basicUser(authorization string) string {
	scheme, text, _ := strings.Cut(authorization, " ")
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil || !strings.EqualFold(scheme, "Basic") {
		return ""
	}
	name, _, _ := strings.Cut(string(raw), ":")
	return name
}

// resolve returns the absolute path of a path that a client names: relative paths, and "~", begin
// at the account's home.
func (acc account) resolve(p string) string {
	switch {
	case p == "~" || strings.HasPrefix(p, "~/"):
		return path.Join(acc.home, strings.TrimPrefix(p, "~"))
	case !path.IsAbs(p):
		return path.Join(acc.home, p)
	}
	return path.Clean(p)
}
