package template

import (
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/modbox/modbox/internal/sandbox"
)

// Uploads counts the bytes and files of the uploads of all builds, also of uploads that are under way. Its
// zero value has none. Safe for concurrent use.
type Uploads struct {
	mu  sync.Mutex
	own map[sandbox.WorkspaceID]amount // guarded by mu; without workspaces that have none
	all amount                         // guarded by mu
}

// amount is a number of files with their bytes.
type amount struct{ files, bytes int64 }

// UploadedBytes returns the bytes of the uploads of a workspace, counting uploads under way with their full size.
func (u *Uploads) UploadedBytes(ws sandbox.WorkspaceID) int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.own[ws].bytes
}

// reserve counts an upload before it comes. Errors: QuotaExceeded; Unavailable.
func (u *Uploads) reserve(ws sandbox.WorkspaceID, size int64) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	own := amount{u.own[ws].files + 1, u.own[ws].bytes + size}
	all := amount{u.all.files + 1, u.all.bytes + size}
	switch {
	case own.bytes > uploadsMax:
		return sandbox.Errorf(sandbox.QuotaExceeded, "the files of the workspace's builds must be at most %s together", sandbox.ShowBytes(uploadsMax))
	case own.files > uploadFilesMax:
		return sandbox.Errorf(sandbox.QuotaExceeded, "the builds of the workspace must have at most %d uploads together", uploadFilesMax)
	case all.bytes > serverUploadsMax, all.files > serverUploadFilesMax:
		return sandbox.Errorf(sandbox.Unavailable, "the builds of all workspaces have too many files; try again later")
	}
	if u.own == nil {
		u.own = map[sandbox.WorkspaceID]amount{}
	}
	u.own[ws], u.all = own, all
	return nil
}

// release ends what reserve began.
func (u *Uploads) release(ws sandbox.WorkspaceID, size int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.all = amount{u.all.files - 1, u.all.bytes - size}
	own := amount{u.own[ws].files - 1, u.own[ws].bytes - size}
	if u.own[ws] = own; own.files == 0 {
		delete(u.own, ws)
	}
}

// owner says whose files are uploaded: the client names no build for its files, only the template.
type owner struct {
	workspace sandbox.WorkspaceID
	template  string
}

// upload is an uploaded file. It is removed when neither a place nor a build needs it.
type upload struct {
	file   *os.File
	size   int64
	remove func() // after its close
	uses   int    // guarded by the mu of places
}

// uploads are uploaded files by the hash that the client names.
type uploads map[string]*upload

// place takes the files for all builds of a template that wait, so that each of several builds at once
// finds its files.
type place struct {
	owner   owner
	id      string
	secret  string
	waiting int     // builds
	files   uploads // each used by the place
}

// places are the places of all templates with builds that wait. Safe for concurrent use.
type places struct {
	mu      sync.Mutex
	byOwner map[owner]*place  // guarded by mu, with all that they have
	byID    map[string]*place // guarded by mu
}

func newPlaces() *places { return &places{byOwner: map[owner]*place{}, byID: map[string]*place{}} }

// join adds a build that waits.
func (p *places) join(of owner) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.byOwner[of]
	if at == nil {
		at = &place{owner: of, id: rand.Text(), secret: rand.Text(), files: uploads{}}
		p.byOwner[of], p.byID[at.id] = at, at
	}
	at.waiting++
}

// leave removes a build that waited. The last takes the place with it.
func (p *places) leave(of owner) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left(p.byOwner[of])
}

// left is leave with p.mu held.
func (p *places) left(at *place) {
	if at.waiting--; at.waiting > 0 {
		return
	}
	delete(p.byOwner, at.owner)
	delete(p.byID, at.id)
	p.unuse(at.files)
}

// take returns the files of the steps of a build that waited, which waits no longer, for drop. Errors:
// Invalid if files are missing, and the build goes on waiting.
func (p *places) take(of owner, steps []Step) (uploads, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.byOwner[of]
	taken := uploads{}
	for i, s := range steps {
		if s.Type != stepCopy {
			continue
		}
		up := at.files[s.FilesHash]
		if up == nil {
			return nil, sandbox.InvalidField(fmt.Sprintf("steps[%d].filesHash", i), "names files that were not uploaded")
		}
		taken[s.FilesHash] = up
	}
	for _, up := range taken {
		up.uses++
	}
	p.left(at)
	return taken, nil
}

// drop ends the use of files by a build.
func (p *places) drop(taken uploads) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unuse(taken)
}

// unuse is drop with p.mu held.
func (p *places) unuse(files uploads) {
	for _, up := range files {
		if up.uses--; up.uses == 0 {
			_ = up.file.Close() // it was read, or is not needed
			up.remove()
		}
	}
}

// address returns the secret of the address for the files with a hash, "" if they are there. Errors: NotFound.
func (p *places) address(of owner, hash string) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.byOwner[of]
	switch {
	case at == nil:
		return "", sandbox.Errorf(sandbox.NotFound, "no build of the template %q waits for files", sandbox.Excerpt(of.template))
	case at.files[hash] != nil:
		return "", nil
	}
	return at.id + "." + at.secret, nil
}

// find returns the owner and the id of the place whose address has a secret, if it is for that template.
func (p *places) find(template, secret string) (of owner, id string, ok bool) {
	id, key, _ := strings.Cut(secret, ".")
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.byID[id]
	if at == nil || at.owner.template != template || subtle.ConstantTimeCompare([]byte(key), []byte(at.secret)) == 0 {
		return owner{}, "", false
	}
	return at.owner, id, true
}

// put puts files into the place with an id, and reports whether they are needed: files that were uploaded
// before with the same hash stay. Errors: Conflict if the place is gone.
func (p *places) put(id, hash string, up *upload) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.byID[id]
	switch {
	case at == nil:
		return false, sandbox.Errorf(sandbox.Conflict, "the build has started, and takes no more files")
	case at.files[hash] != nil:
		return false, nil
	}
	up.uses = 1
	at.files[hash] = up
	return true, nil
}
