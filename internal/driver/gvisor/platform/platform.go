// Package platform chooses the platform of gVisor, which is how gVisor runs the programs of a box:
// systrap, which works everywhere, or KVM, which works on some hosts that have its device, and hangs on
// others.
//
// Only a box that really runs shows whether KVM works, so one is tried. That a try begins is on the disk
// before it does, and then its outcome: a host is tried once for each build of modbox-sandbox after each of
// its starts, and a host that does not survive a try, or two where KVM worked before, or a process that cannot be killed, is not tried again.
package platform

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/driver/gvisor/process"
	"github.com/modbox/modbox/internal/durable"
)

// Name is gVisor's name of a platform.
type Name string

// The platforms.
const (
	Systrap Name = "systrap"
	KVM     Name = "kvm"
)

// Auto is the setting for KVM where it works, and systrap elsewhere. The other settings are the names.
const Auto = "auto"

// Device is KVM's device.
const Device = "/dev/kvm"

// RecordName is the name of the record in the state directory.
const RecordName = "platform.json"

// Limit bounds the time in which a box starts and runs a program. A box that works needs a tenth of a second.
const Limit = 10 * time.Second

// ErrRemains marks the error of a try that leaves something on the host.
var ErrRemains = errors.New("a process of it cannot be killed")

// Choice is a platform, and the reason for it.
type Choice struct {
	Platform Name
	Reason   string
	// Failed is whether KVM was tried, and does not work.
	Failed bool
	// Unsure is whether KVM may work at the next start: what was saved on it is still of use.
	Unsure bool
	// Full is whether KVM was not tried because the disk is full.
	Full bool
}

// Chooser chooses the platform of this host.
type Chooser struct {
	Record string // path of the file with the outcome of the last try
	Binary string // path of modbox-sandbox
	Device string // path of KVM's device, see [Device]
	Boot   string // identifies the start of the host
	Kernel string // release of the host's kernel
	// Untried is set where a process that remains of a try could be missed: without control groups.
	Untried bool
}

// New returns a chooser for boxes of the executable binary, with its record in the directory stateDir.
func New(stateDir, binary string) Chooser {
	var u unix.Utsname
	_ = unix.Uname(&u) // it does not fail with an address of ours
	return Chooser{Record: filepath.Join(stateDir, RecordName), Binary: binary, Device: Device, Boot: process.BootID(), Kernel: unix.ByteSliceToString(u.Release[:])}
}

// Outcomes of a try.
const (
	begun   = "begun" // and not ended
	works   = "works"
	fails   = "fails"
	remains = "remains" // it failed, and something of it remains
)

// record is the content of the file.
type record struct {
	Outcome string    `json:"outcome"`
	Reason  string    `json:"reason,omitempty"`
	At      time.Time `json:"at"`
	Worked  bool      `json:"worked,omitempty"` // with the same executable and kernel in an earlier try
	// Unended counts the latest tries, with the same executable and kernel, that began and did not end.
	Unended int `json:"unended,omitempty"`
	// The executable and the host of the try.
	Binary string `json:"binary"` // hash of modbox-sandbox
	Device string `json:"device"`
	Boot   string `json:"boot"`
	Kernel string `json:"kernel"`
}

// final reports whether a try with outcome r says what one of next would show.
func (r record) final(next record) bool {
	if r.Binary != next.Binary || r.Kernel != next.Kernel {
		return false
	}
	if r.Outcome == begun && r.Worked && r.Unended < 2 { // perhaps the power was cut; the next such try is the last
		return false
	}
	if r.Outcome != works && r.Outcome != fails { // a restart of the host makes a try no safer
		return true
	}
	if r.Outcome == fails && r.Worked { // perhaps the host was only busy
		return false
	}
	return r.Boot == next.Boot && r.Device == next.Device
}

// Look returns the choice for a setting, and whether it is known without a try. It touches nothing of KVM
// with [Systrap], and the executable only if there was a try. Errors: KVM is set and does not work.
func (c Chooser) Look(setting string) (Choice, bool, error) {
	_, _, known := c.rule(setting)
	if _, err := os.Stat(c.Record); !known && errors.Is(err, fs.ErrNotExist) {
		return Choice{}, false, nil
	}
	choice, known, _ := c.look(setting)
	return choice, known, check(setting, choice, known)
}

// Choose returns the choice for a setting. It calls try if that is necessary: it runs a box on KVM, and returns
// when nothing of it remains or with [ErrRemains]. Its context ends after [Limit]. Errors: KVM is set and does not work, also
// with the choice; the context's.
func (c Chooser) Choose(ctx context.Context, setting string, try func(context.Context) error) (Choice, error) {
	choice, known, next := c.look(setting)
	if !known && c.Untried {
		choice = c.unrecorded(errors.New("the server has no control groups, without which it could miss a process that cannot be killed"))
	} else if !known {
		var err error
		if choice, err = c.try(ctx, next, try); err != nil {
			return Choice{}, err
		}
	}
	return choice, check(setting, choice, true)
}

func check(setting string, choice Choice, known bool) error {
	if known && setting == string(KVM) && choice.Platform != KVM {
		return fmt.Errorf("sandbox.platform is kvm: %s", choice.Reason)
	}
	return nil
}

// look is Look; when the choice is not known it returns the record of a try that has begun.
func (c Chooser) look(setting string) (choice Choice, known bool, next record) {
	device, choice, known := c.rule(setting)
	if known {
		return choice, true, next
	}
	binary, err := hash(c.Binary)
	if err != nil {
		return c.unrecorded(err), true, next
	}
	next = record{Outcome: begun, At: time.Now().UTC().Truncate(time.Second), Binary: binary, Device: device, Boot: c.Boot, Kernel: c.Kernel}
	last, err := c.read()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return choice, false, next
	case err != nil:
		return c.unrecorded(err), true, next
	case !last.final(next):
		return choice, false, next
	}
	return c.choice(last), true, next
}

// rule returns the choice that needs no try, and whether there is one; else what identifies the device.
func (c Chooser) rule(setting string) (device string, choice Choice, known bool) {
	if setting != Auto && setting != string(KVM) {
		return "", Choice{Platform: Systrap, Reason: "sandbox.platform is systrap"}, true
	}
	device, err := identify(c.Device)
	if err != nil {
		return "", Choice{Platform: Systrap, Reason: "kvm is not available: " + err.Error(), Failed: !errors.Is(err, fs.ErrNotExist), Unsure: Short(err)}, true
	}
	return device, Choice{}, false
}

// unrecorded returns the choice when a try cannot be made or recorded; the next start tries again.
func (c Chooser) unrecorded(err error) Choice {
	full := errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
	return Choice{Platform: Systrap, Reason: "kvm is not tried at this start: " + line(err), Failed: true, Unsure: true, Full: full}
}

// choice returns the choice after a try.
func (c Chooser) choice(r record) Choice {
	at := r.At.Format(time.RFC3339)
	again := "; to try again, remove " + c.Record + " and start the server"
	switch r.Outcome {
	case works:
		return Choice{Platform: KVM, Reason: "a sandbox ran on kvm in a try at " + at + ": " + r.Reason}
	case fails:
		return Choice{Platform: Systrap, Reason: "kvm does not work on this host: " + r.Reason + " (tried at " + at + ")" + again, Failed: true, Unsure: r.Worked}
	case remains:
		return Choice{Platform: Systrap, Reason: "kvm does not work on this host, and a process of the try at " + at + " could not be killed: " + r.Reason + again, Failed: true}
	}
	return Choice{Platform: Systrap, Reason: "a try of kvm that began at " + at + " did not end: the server was killed meanwhile, or the host stopped" + again, Failed: true}
}

// try makes a try and records its outcome.
func (c Chooser) try(ctx context.Context, r record, try func(context.Context) error) (Choice, error) {
	last, err := c.read()
	if err != nil {
		last = record{}
	}
	same := last.Binary == r.Binary && last.Kernel == r.Kernel
	r.Worked = same && (last.Worked || last.Outcome == works)
	r.Unended = 1
	if same && last.Outcome == begun {
		r.Unended = max(last.Unended, 1) + 1
	}
	if err := c.write(r); err != nil {
		return c.unrecorded(err), nil
	}
	began := time.Now()
	limited, cancel := context.WithTimeoutCause(ctx, Limit, fmt.Errorf("no sandbox ran within %v", Limit))
	err = try(limited)
	cancel()
	switch {
	case errors.Is(err, ErrRemains):
		r.Outcome, r.Reason = remains, line(err)
	case ctx.Err() != nil: // nothing is known
		return Choice{}, errors.Join(context.Cause(ctx), c.restore(last))
	case Short(err): // nor now
		return c.unrecorded(errors.Join(err, c.restore(last))), nil
	case err != nil:
		r.Outcome, r.Reason = fails, line(err)
	default:
		r.Outcome, r.Reason = works, fmt.Sprintf("in %d ms", time.Since(began).Milliseconds())
	}
	r.Unended = 0
	if err := c.write(r); err != nil {
		if r.Outcome != remains { // else the record of the begin prevents the next try, or the one after it
			err = errors.Join(err, c.forget())
		}
		return c.unrecorded(err), nil
	}
	return c.choice(r), nil
}

// restore writes the record of before a try again, or removes the record if there was none or it cannot be written.
func (c Chooser) restore(last record) error {
	if last.Outcome != "" && c.write(last) == nil {
		return nil
	}
	return c.forget()
}

// forget removes the record, which needs no space.
func (c Chooser) forget() error {
	if err := os.Remove(c.Record); err != nil {
		return err
	}
	return durable.Sync(filepath.Dir(c.Record))
}

// line returns the text of an error as one line.
func line(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// Short reports whether err is for lack of a resource of the host, which says nothing about KVM.
func Short(err error) bool {
	for _, lack := range []error{unix.ENOSPC, unix.EDQUOT, unix.ENOMEM, unix.EMFILE, unix.ENFILE, unix.EAGAIN} {
		if errors.Is(err, lack) {
			return true
		}
	}
	return false
}

func (c Chooser) write(r record) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(c.Record, append(data, '\n'))
}

func (c Chooser) read() (r record, err error) {
	data, err := os.ReadFile(c.Record)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("read %s: %w", c.Record, err)
	}
	return r, nil
}

// identify opens a device and returns what identifies it until the host starts again: when its module is loaded
// again, it has another inode.
func identify(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return fmt.Sprintf("%d:%d inode %d", unix.Major(st.Rdev), unix.Minor(st.Rdev), st.Ino), nil
}

func hash(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
