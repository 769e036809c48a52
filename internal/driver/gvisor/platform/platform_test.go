package platform

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// newChooser returns a chooser with a device that can be opened.
func newChooser(t *testing.T) Chooser {
	t.Helper()
	dir := t.TempDir()
	c := Chooser{Record: filepath.Join(dir, RecordName), Binary: filepath.Join(dir, "sandbox"), Device: filepath.Join(dir, "kvm"), Boot: "first", Kernel: "6.1"}
	for _, name := range []string{c.Binary, c.Device} {
		if err := os.WriteFile(name, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// choose chooses with a try that has a result, and reports whether there was one.
func choose(t *testing.T, c Chooser, setting string, result error) (choice Choice, tried bool) {
	t.Helper()
	choice, err := c.Choose(t.Context(), setting, func(context.Context) error {
		tried = true
		if r, err := c.read(); err != nil || r.Outcome != begun {
			t.Errorf("during the try the record is %+v, %v; want that it has begun", r, err)
		}
		return result
	})
	if want := setting == string(KVM) && choice.Platform != KVM; (err != nil) != want || want && !strings.Contains(err.Error(), choice.Reason) {
		t.Errorf("Choose(%q) = %+v, %v", setting, choice, err)
	}
	looked, known, lookErr := c.Look(setting)
	if looked != choice || !known || (lookErr != nil) != (err != nil) {
		t.Errorf("Look(%q) = %+v, %v, %v; Choose = %+v, %v", setting, looked, known, lookErr, choice, err)
	}
	return choice, tried
}

func TestSystrapTriesNothing(t *testing.T) {
	c := newChooser(t)
	for _, setting := range []string{"", string(Systrap)} {
		if choice, tried := choose(t, c, setting, nil); choice.Platform != Systrap || choice.Failed || tried {
			t.Errorf("setting %q: %+v, tried %v", setting, choice, tried)
		}
	}
	if _, err := os.Stat(c.Record); !os.IsNotExist(err) {
		t.Errorf("a record was made: %v", err)
	}
}

func TestWithoutDevice(t *testing.T) {
	c := newChooser(t)
	c.Device += "-none"
	for _, setting := range []string{Auto, string(KVM)} {
		choice, tried := choose(t, c, setting, nil)
		if choice.Platform != Systrap || choice.Failed || tried || !strings.Contains(choice.Reason, c.Device) {
			t.Errorf("setting %s: %+v, tried %v", setting, choice, tried)
		}
	}
}

func TestOutcomes(t *testing.T) {
	for name, tc := range map[string]struct {
		result  error
		want    Name
		reason  string
		reboots bool // tried again after a restart of the host
	}{
		"works":   {want: KVM, reason: "ran on kvm", reboots: true},
		"fails":   {result: errors.New("broken\n\tnow"), want: Systrap, reason: "broken now", reboots: true},
		"remains": {result: fmt.Errorf("box: %w", ErrRemains), want: Systrap, reason: "could not be killed"},
	} {
		for _, setting := range []string{Auto, string(KVM)} {
			t.Run(name+"/"+setting, func(t *testing.T) {
				c := newChooser(t)
				if _, known, err := c.Look(setting); known || err != nil {
					t.Errorf("before the first try, Look = %v, %v", known, err)
				}
				first, tried := choose(t, c, setting, tc.result)
				if !tried || first.Platform != tc.want || first.Unsure || first.Failed != (tc.want == Systrap) || !strings.Contains(first.Reason, tc.reason) {
					t.Errorf("first: %+v, tried %v; want %s because %q", first, tried, tc.want, tc.reason)
				}
				if tc.want == Systrap && !strings.Contains(first.Reason, c.Record) {
					t.Errorf("%q does not say how to try again", first.Reason)
				}
				if again, tried := choose(t, c, setting, errors.New("tried again")); tried || again != first {
					t.Errorf("at the next start: %+v, tried %v; want %+v again", again, tried, first)
				}
				if choice, tried := choose(t, c, string(Systrap), nil); tried || choice.Platform != Systrap {
					t.Errorf("systrap was set: %+v, tried %v", choice, tried)
				}
				rebooted := c
				rebooted.Boot = "second"
				if _, tried := choose(t, rebooted, setting, tc.result); tried != tc.reboots {
					t.Errorf("after a restart of the host: tried %v, want %v", tried, tc.reboots)
				}
				updated := rebooted
				updated.Kernel = "6.2"
				if _, tried := choose(t, updated, setting, tc.result); !tried {
					t.Error("another kernel was not tried")
				}
				if err := os.WriteFile(c.Binary, []byte("new"), 0o600); err != nil {
					t.Fatal(err)
				}
				if _, tried := choose(t, updated, setting, tc.result); !tried {
					t.Error("another build was not tried")
				}
				if err := os.Remove(c.Record); err != nil {
					t.Fatal(err)
				}
				if _, tried := choose(t, updated, setting, tc.result); !tried {
					t.Error("without the record it was not tried again")
				}
			})
		}
	}
}

func TestDeviceOfAnotherModule(t *testing.T) {
	c := newChooser(t)
	choose(t, c, Auto, nil)
	other := c.Device + "-other"
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(other, c.Device); err != nil {
		t.Fatal(err)
	}
	if _, tried := choose(t, c, Auto, nil); !tried {
		t.Error("a device that was made again was not tried")
	}
}

// A server that is killed in a try, with its host or without, makes no other.
func TestTryThatDidNotEnd(t *testing.T) {
	c := newChooser(t)
	_, _, next := c.look(Auto)
	if err := c.write(next); err != nil {
		t.Fatal(err)
	}
	for _, boot := range []string{"first", "second"} {
		c.Boot = boot
		choice, tried := choose(t, c, Auto, nil)
		if tried || choice.Platform != Systrap || !choice.Failed || !strings.Contains(choice.Reason, "did not end") {
			t.Errorf("boot %s: %+v, tried %v", boot, choice, tried)
		}
	}
	c.Kernel = "6.2"
	if _, tried := choose(t, c, Auto, nil); !tried {
		t.Error("another kernel was not tried")
	}
}

// Where KVM worked, one try that did not end is followed by another, and two are not.
func TestTryThatDidNotEndWhereItWorked(t *testing.T) {
	c := newChooser(t)
	choose(t, c, Auto, nil)
	kill := func() { // the server in the next try
		defer func() {
			if recover() == nil {
				t.Error("nothing was tried")
			}
		}()
		_, _ = c.Choose(t.Context(), Auto, func(context.Context) error { panic("killed") })
	}
	c.Boot = "second"
	kill()
	if choice, tried := choose(t, c, Auto, nil); !tried || choice.Platform != KVM {
		t.Errorf("after one try that did not end: %+v, tried %v", choice, tried)
	}
	c.Boot = "third"
	kill()
	kill()
	for _, boot := range []string{"third", "fourth"} {
		c.Boot = boot
		if choice, tried := choose(t, c, Auto, nil); tried || choice.Platform != Systrap || !strings.Contains(choice.Reason, "did not end") {
			t.Errorf("after two tries that did not end: %+v, tried %v", choice, tried)
		}
	}
	c.Kernel = "6.2"
	if _, tried := choose(t, c, Auto, nil); !tried {
		t.Error("another kernel was not tried")
	}
}

// A lack of resources says nothing about KVM.
func TestShortage(t *testing.T) {
	c := newChooser(t)
	for range 2 {
		choice, err := c.Choose(t.Context(), Auto, func(context.Context) error { return fmt.Errorf("create: %w", unix.ENOMEM) })
		if err != nil || choice.Platform != Systrap || !choice.Failed || !choice.Unsure || choice.Full {
			t.Errorf("Choose = %+v, %v", choice, err)
		}
		if _, known, _ := c.Look(Auto); known {
			t.Error("the lack of resources was recorded as an outcome")
		}
	}
	if choice, _ := choose(t, c, Auto, nil); choice.Platform != KVM {
		t.Errorf("the next start: %+v", choice)
	}
}

// A record that cannot be written leaves none that would prevent the next try, unless a process remains.
func TestOutcomeThatCannotBeWritten(t *testing.T) {
	for name, tc := range map[string]struct {
		before func(*testing.T, Chooser)
		result error
		known  bool
	}{
		"works":               {},
		"fails":               {result: errors.New("broken")},
		"remains":             {result: ErrRemains, known: true},
		"a lack":              {result: unix.ENFILE},
		"a lack after a try":  {result: unix.ENFILE, before: func(t *testing.T, c Chooser) { c.Boot = "before"; choose(t, c, Auto, nil) }},
		"fails after a try":   {result: errors.New("broken"), before: func(t *testing.T, c Chooser) { c.Boot = "before"; choose(t, c, Auto, nil) }},
		"remains after a try": {result: ErrRemains, known: true, before: func(t *testing.T, c Chooser) { c.Boot = "before"; choose(t, c, Auto, nil) }},
	} {
		t.Run(name, func(t *testing.T) {
			c := newChooser(t)
			if tc.before != nil {
				tc.before(t, c)
			}
			choice, err := c.Choose(t.Context(), Auto, func(context.Context) error {
				if err := errors.Join(os.Remove(c.Record), os.Mkdir(c.Record, 0o700)); err != nil { // it cannot be replaced by a file
					t.Fatal(err)
				}
				return tc.result
			})
			if err != nil || choice.Platform != Systrap || !choice.Unsure {
				t.Errorf("Choose = %+v, %v", choice, err)
			}
			if _, err := os.Stat(c.Record); (err == nil) != tc.known {
				t.Errorf("the record of the begin: %v, want it: %v", err, tc.known)
			}
		})
	}
}

// A full disk is named, whatever was set, so that the caller can make space.
func TestFullDisk(t *testing.T) {
	for _, setting := range []string{Auto, string(KVM)} {
		c := newChooser(t)
		choice, err := c.Choose(t.Context(), setting, func(context.Context) error { return fmt.Errorf("create: %w", unix.ENOSPC) })
		if !choice.Full || !choice.Unsure || choice.Platform != Systrap || (err != nil) != (setting == string(KVM)) {
			t.Errorf("%s: Choose = %+v, %v", setting, choice, err)
		}
	}
}

// Where KVM worked, a failure is not final.
func TestFailureWhereItWorked(t *testing.T) {
	c := newChooser(t)
	choose(t, c, Auto, nil)
	c.Boot = "second"
	for range 2 {
		var tried bool
		choice, err := c.Choose(t.Context(), Auto, func(context.Context) error { tried = true; return errors.New("busy") })
		if err != nil || choice.Platform != Systrap || !choice.Unsure || !tried {
			t.Errorf("Choose = %+v, %v, tried %v", choice, err, tried)
		}
	}
	if choice, tried := choose(t, c, Auto, nil); choice.Platform != KVM || !tried {
		t.Errorf("when it works again: %+v, tried %v", choice, tried)
	}
}

func TestWithoutControlGroups(t *testing.T) {
	c := newChooser(t)
	c.Untried = true
	choice, err := c.Choose(t.Context(), Auto, func(context.Context) error { t.Error("tried"); return nil })
	if err != nil || choice.Platform != Systrap || !choice.Failed {
		t.Errorf("Choose = %+v, %v", choice, err)
	}
}

func TestTryThatHangs(t *testing.T) {
	c := newChooser(t)
	synctest.Test(t, func(t *testing.T) {
		choice, err := c.Choose(t.Context(), Auto, func(ctx context.Context) error {
			<-ctx.Done()
			return fmt.Errorf("boot: %w", context.Cause(ctx))
		})
		if err != nil || choice.Platform != Systrap || !strings.Contains(choice.Reason, Limit.String()) {
			t.Errorf("Choose = %+v, %v", choice, err)
		}
	})
}

// A server that is stopped in a try tries again at its next start.
func TestTryThatWasCancelled(t *testing.T) {
	c := newChooser(t)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := c.Choose(ctx, Auto, func(ctx context.Context) error {
		cancel()
		return ctx.Err()
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Choose = %v, want that it was cancelled", err)
	}
	if _, tried := choose(t, c, Auto, nil); !tried {
		t.Error("it was not tried again")
	}
}

func TestRecordThatCannotBeUsed(t *testing.T) {
	for name, spoil := range map[string]func(Chooser) error{
		"no record":     func(c Chooser) error { return os.WriteFile(c.Record, []byte("{"), 0o600) },
		"a directory":   func(c Chooser) error { return os.Mkdir(c.Record, 0o700) },
		"nowhere":       func(c Chooser) error { return nil },
		"no executable": func(c Chooser) error { return os.Remove(c.Binary) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newChooser(t)
			if err := spoil(c); err != nil {
				t.Fatal(err)
			}
			if name == "nowhere" {
				c.Record = filepath.Join(c.Record, "none", RecordName)
			}
			choice, err := c.Choose(t.Context(), Auto, func(context.Context) error {
				t.Error("tried without a record")
				return nil
			})
			if err != nil || choice.Platform != Systrap || !choice.Failed {
				t.Errorf("Choose = %+v, %v", choice, err)
			}
		})
	}
}

func TestRecordOfAnotherVersion(t *testing.T) {
	c := newChooser(t)
	_, _, next := c.look(Auto)
	next.Outcome, next.At = "something else", time.Unix(0, 0)
	data, err := json.Marshal(next)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.Record, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if choice, tried := choose(t, c, Auto, nil); choice.Platform != Systrap || tried {
		t.Errorf("%+v, tried %v; want systrap without a try", choice, tried)
	}
}
