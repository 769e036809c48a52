package installation

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Dirs are the directories of a server, and what of them belongs to a database.
type Dirs struct {
	State, Run string
	// Database is the file, Saved the directory with a directory of saved states for each
	// sandbox, Boxes the one with a directory for each sandbox that runs.
	Database, Saved, Boxes string
}

// howToDecide ends the messages about a database that does not fit.
const howToDecide = "Nothing was changed. Put the right database back and start again; or, to go on with this one, start once with `modbox server --accept-database`: " +
	"then sandboxes that it does not know end, and what was saved of them goes to quarantine (modbox quarantine ls)."

func (d Dirs) refuse(format string, args ...any) error {
	return fmt.Errorf(format+". "+howToDecide, args...)
}

// CheckMissing refuses a start that would make a database where sandboxes, or a mark,
// show that there was one. It is for before the database is opened.
func (d Dirs) CheckMissing() error {
	if _, err := os.Stat(d.Database); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	mark, found, err := Read(d.State)
	switch {
	case err != nil:
		return err
	case found:
		return d.refuse("there is no database %s, but the one of installation %s was used with this state directory", d.Database, mark.ID)
	}
	for _, dir := range []string{d.Saved, d.Boxes} {
		names, err := entries(dir)
		if err != nil {
			return err
		}
		if len(names) > 0 {
			return d.refuse("there is no database %s, but %s holds sandboxes of a server", d.Database, dir)
		}
	}
	return nil
}

// CheckRun refuses a run directory that holds sandboxes of a server with another state
// directory, which no decision about the database makes this server's to end.
func (d Dirs) CheckRun() error {
	mark, found, err := Read(d.Run)
	if err != nil || !found || mark.StateDir == d.State {
		return err
	}
	own, found, err := Read(d.State)
	if err != nil || found && own.ID == mark.ID { // the state directory was moved
		return err
	}
	names, err := entries(d.Boxes)
	if err != nil || len(names) == 0 {
		return err
	}
	return fmt.Errorf("the run directory %s holds %d sandboxes of the server with state directory %s; give this server a run directory of its own (--run-dir or MODBOX_RUN_DIR)",
		d.Run, len(names), mark.StateDir)
}

// Found are the marks of the directories of a server that count.
type Found []found

type found struct {
	dir string
	Mark
}

// Marks returns the marks beside a database. With several active servers they grow with it, so they must be read before it.
func (d Dirs) Marks() (list Found, err error) {
	for _, dir := range []string{d.State, d.Run} {
		mark, there, err := Read(dir)
		if err != nil {
			return nil, err
		}
		if !there {
			continue
		}
		if dir == d.Run && dir != d.State {
			names, err := entries(d.Boxes)
			if err != nil {
				return nil, err
			}
			if len(names) == 0 {
				continue // nothing there can be lost
			}
		}
		list = append(list, found{dir, mark})
	}
	return list, nil
}

// Check refuses a database that is older than the marks beside it, or another's.
func (d Dirs) Check(marks Found, db Identity) error {
	for _, m := range marks {
		switch {
		case m.ID != db.ID:
			return d.refuse("the database %s is of installation %s, but what lies in %s is of installation %s", d.Database, db.ID, m.dir, m.ID)
		case m.Generation > db.Generation:
			return d.refuse("the database %s is older than what lies in %s: it is of generation %d, and %d was reached", d.Database, m.dir, db.Generation, m.Generation)
		}
	}
	return nil
}

// entries returns the names in dir, none when it is not there. "forks", in the directory
// of saved states, holds only operations under way.
func entries(dir string) ([]string, error) {
	list, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for sandboxes: %w", err)
	}
	var names []string
	for _, e := range list {
		if e.Name() != "forks" {
			names = append(names, e.Name())
		}
	}
	return names, nil
}
