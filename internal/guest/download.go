package guest

import (
	"errors"
	"io"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/sandbox"
)

// maxResumes bounds the number of times that the download of a file continues after its connection to the
// agent broke. Breaks by a save of the box do not count.
const maxResumes = 5

// download is the content of a file. Reading it continues after a save of the box, and after a
// connection that broke, for example because a busy machine let the agent answer no ping in time.
type download struct {
	call  *call
	files agentapi.Files
	path  string
	info  agentapi.FileInfo
	end   func()

	body   io.ReadCloser
	at     int64 // of the next byte
	left   int64 // to be read, negative for all
	breaks int   // connections that broke without a save
	failed error // the error of each later Read
}

// Read reads the next bytes. Its errors have codes.
func (d *download) Read(p []byte) (int, error) {
	for d.failed == nil {
		n, err := d.body.Read(p)
		d.at += int64(n)
		if d.left > 0 {
			d.left = max(0, d.left-int64(n))
		}
		switch {
		case err == nil || err == io.EOF:
			return n, err
		case n > 0:
			return n, nil // the error comes again
		}
		d.failed = d.reopen(err)
	}
	return 0, d.failed
}

// reopen opens the file again, at the byte where reading failed with reason.
func (d *download) reopen(reason error) error {
	for {
		if err := d.repeatable(reason); err != nil {
			return err
		}
		if d.info.Size == 0 && d.at > 0 { // as files of /proc have it, whose content differs at each open
			return sandbox.Wrap(sandbox.Unavailable, reason, "the connection to the sandbox broke, or the sandbox was saved, while %s was read; try again", sandbox.Excerpt(d.path))
		}
		body, info, err := d.files.ReadFile(d.call.ctx, d.path, d.at, d.left)
		switch {
		case err == nil && info.Size == d.info.Size && info.ModTime.Equal(d.info.ModTime):
			_ = d.body.Close() // it is broken
			d.body = body
			return nil
		case err == nil:
			_ = body.Close() // nothing was read
			return d.changed()
		}
		var refused *agentapi.Error
		if errors.As(err, &refused) && refused.Code == agentapi.CodeInvalid { // too short, or no file any more
			return d.changed()
		}
		reason = err
	}
}

// repeatable returns nil if the file can be opened again after reason, otherwise the error for the
// caller.
func (d *download) repeatable(reason error) error {
	err := d.call.again(reason)
	if err == nil || !box.NoAnswer(reason) || d.call.ctx.Err() != nil || !d.call.box.Runs(d.call.handle) || d.breaks == maxResumes {
		return err
	}
	d.breaks++
	return nil
}

func (d *download) changed() error {
	return sandbox.Errorf(sandbox.Conflict, "%s was changed while it was read, and the connection to the sandbox broke or the sandbox was saved; try again", sandbox.Excerpt(d.path))
}

// Close ends the download. It may be called again.
func (d *download) Close() error {
	d.end()
	return d.body.Close()
}
