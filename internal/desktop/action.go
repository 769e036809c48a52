package desktop

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/modbox/modbox/internal/sandbox"
)

// Kind is a kind of action.
type Kind string

// The kinds of actions.
const (
	Move      Kind = "move"
	Click     Kind = "click"
	MouseDown Kind = "mouse_down"
	MouseUp   Kind = "mouse_up"
	Drag      Kind = "drag"
	Scroll    Kind = "scroll"
	Type      Kind = "type"
	Key       Kind = "key"
	KeyDown   Kind = "key_down"
	KeyUp     Kind = "key_up"
	Wait      Kind = "wait"
)

// Point is a position on a screen.
type Point struct{ X, Y int }

// Action is a use of the mouse or the keyboard. Fields that a kind does not use must be zero.
type Action struct {
	Kind      Kind
	At        *Point        // Move, Drag; optional for Click, MouseDown, MouseUp, Scroll
	To        *Point        // Drag
	Button    string        // left, middle, right; empty means left
	Clicks    int           // Click; 0 is 1
	Direction string        // Scroll: up, down, left, right; "" is down
	Amount    int           // Scroll; 0 is 3
	Text      string        // Type
	Keys      string        // Key, KeyDown, KeyUp: combinations, separated by spaces
	Hold      []string      // Click, Drag, Scroll: keys that are held meanwhile
	Wait      time.Duration // Wait; 0 is 500 ms
}

const (
	// MaxActions bounds the actions of a request, MaxText the text of an action in bytes, and MaxWait
	// the time of all that wait.
	MaxActions = 100
	MaxText    = 16 << 10
	MaxWait    = time.Minute

	maxCombinations = 32
	// keyTime is the time between the keys of a text, and strangeTime if there are characters that
	// the keyboard does not have.
	keyTime     = 4 * time.Millisecond
	strangeTime = 12 * time.Millisecond
	// dragSteps are the movements of a drag: programs ignore a pointer that jumps.
	dragSteps = 8
)

// step is a run of xdotool.
type step struct {
	argv  []string
	stdin string
	time  time.Duration // about how long it takes
	// keys are keys to define first, as xmodmap reads them.
	keys string
	// taps says that keys go down and up at once, holds that keys stay down, perhaps to be repeated.
	taps, holds bool
}

// Do performs actions, one after the other. Errors: Invalid, before anything is done, except for names of
// keys that do not exist; as for [Target.Screen].
func (t Target) Do(ctx context.Context, actions []Action) error {
	steps, err := plan(actions)
	if err != nil {
		return err
	}
	held := slices.ContainsFunc(steps, func(s step) bool { return s.holds })
	for _, s := range steps {
		if err := t.do(ctx, s, s.taps && !held); err != nil {
			return err
		}
	}
	return nil
}

// unrepeated runs xdotool while the X server repeats no key: it repeats a key that is down for 0.6 seconds, as each key may
// be while the machine is busy. A repetition that was off before stays off.
const unrepeated = `if xset q 2>/dev/null | grep -q 'auto repeat: *on'; then xset r off; trap 'xset r on' EXIT; fi; xdotool "$@"`

// do performs a step, with no repetition of keys if once is set.
func (t Target) do(ctx context.Context, s step, once bool) error {
	if s.keys != "" {
		// Without xmodmap, xdotool defines each key when it needs it, which some programs notice too late.
		if _, err := t.run(ctx, Command{Argv: []string{"sh", "-c", "xmodmap - && sleep 0.2 || true"}, Stdin: s.keys}); err != nil {
			return err
		}
	}
	program := []string{"xdotool"}
	if once {
		program = []string{"sh", "-c", unrepeated, "xdotool"}
	}
	r, err := t.run(ctx, Command{Argv: append(program, s.argv...), Stdin: s.stdin, Timeout: callTime + 2*s.time})
	if err != nil {
		return err
	}
	if once && r.Code == 127 {
		return errNone(nil, "it has no xdotool")
	}
	// For some errors its exit code is 0.
	if r.Code != 0 || noKey().Match(r.Stderr) {
		return failure("xdotool", r)
	}
	return nil
}

// plan translates actions. Text is given on standard input, so that no list of processes shows it; the
// actions between texts are one run.
func plan(actions []Action) ([]step, error) {
	if len(actions) == 0 || len(actions) > MaxActions {
		return nil, sandbox.InvalidField("actions", "must be 1 to %d", MaxActions)
	}
	var steps []step
	var current step
	var waits time.Duration
	flush := func() {
		if len(current.argv) > 0 {
			steps = append(steps, current)
			current = step{}
		}
	}
	for i, a := range actions {
		argv, err := a.argv()
		if err != nil {
			err.Field = fmt.Sprintf("actions[%d].%s", i, err.Field)
			return nil, err
		}
		if a.Kind == Type {
			flush()
			steps = append(steps, typing(a.Text)...)
			continue
		}
		if a.Kind == Wait {
			waits += a.pause()
		}
		if waits > MaxWait {
			return nil, sandbox.InvalidField(fmt.Sprintf("actions[%d].duration_ms", i), "all actions together may wait %s", MaxWait)
		}
		current.argv = append(current.argv, argv...)
		current.taps = current.taps || a.Kind == Key
		current.holds = current.holds || a.Kind == KeyDown
		current.time += a.pause() + 200*time.Millisecond
	}
	flush()
	return steps, nil
}

// The keys that a keyboard in general does not have, which are defined as other characters.
const firstKey, lastKey = 232, 255

// typing returns the steps that type a text: one for each part that needs no more other characters than
// there are keys for them.
func typing(text string) []step {
	var steps []step
	var part strings.Builder
	other := map[rune]bool{}
	var keys strings.Builder
	flush := func() {
		if part.Len() == 0 {
			return
		}
		delay := keyTime
		if len(other) > 0 {
			delay = strangeTime
		}
		steps = append(steps, step{
			argv:  []string{"type", "--delay", strconv.FormatInt(delay.Milliseconds(), 10), "--file", "-"},
			stdin: part.String(), keys: keys.String(), taps: true, time: 4 * delay * time.Duration(utf8.RuneCountInString(part.String())),
		})
		part.Reset()
		keys.Reset()
		clear(other)
	}
	for _, r := range text {
		if r > unicode.MaxASCII && !other[r] {
			if firstKey+len(other) > lastKey {
				flush()
			}
			fmt.Fprintf(&keys, "keycode %d = U%04X\n", firstKey+len(other), r)
			other[r] = true
		}
		part.WriteRune(r)
	}
	flush()
	return steps
}

func (a *Action) pause() time.Duration {
	switch {
	case a.Kind != Wait:
		return 0
	case a.Wait == 0:
		return 500 * time.Millisecond
	}
	return a.Wait
}

var buttons = map[string]string{"": "1", "left": "1", "middle": "2", "right": "3"}

var wheel = map[string]string{"up": "4", "": "5", "down": "5", "left": "6", "right": "7"}

// argv returns the arguments of xdotool for an action; nil for a text.
func (a *Action) argv() ([]string, *sandbox.Error) {
	if err := a.check(); err != nil {
		return nil, err
	}
	var argv []string
	for _, key := range a.Hold {
		argv = append(argv, "keydown", keyName(key))
	}
	if a.At != nil {
		argv = append(argv, moveTo(*a.At)...)
	}
	button := buttons[a.Button]
	switch a.Kind {
	case Click:
		argv = append(argv, "click", "--delay", "60", "--repeat", strconv.Itoa(max(a.Clicks, 1)), button)
	case MouseDown:
		argv = append(argv, "mousedown", button)
	case MouseUp:
		argv = append(argv, "mouseup", button)
	case Drag:
		argv = append(argv, drag(*a.At, *a.To, button)...)
	case Scroll:
		amount := a.Amount
		if amount == 0 {
			amount = 3
		}
		argv = append(argv, "click", "--delay", "10", "--repeat", strconv.Itoa(amount), wheel[a.Direction])
	case Key, KeyDown, KeyUp:
		name := map[Kind]string{Key: "key", KeyDown: "keydown", KeyUp: "keyup"}[a.Kind]
		for _, combination := range strings.Fields(a.Keys) {
			argv = append(argv, name, combinationName(combination))
		}
	case Wait:
		argv = append(argv, "sleep", strconv.FormatFloat(a.pause().Seconds(), 'f', 3, 64))
	}
	for i := len(a.Hold) - 1; i >= 0; i-- {
		argv = append(argv, "keyup", keyName(a.Hold[i]))
	}
	return argv, nil
}

func moveTo(p Point) []string { return []string{"mousemove", strconv.Itoa(p.X), strconv.Itoa(p.Y)} }

func drag(from, to Point, button string) []string {
	argv := []string{"mousedown", button}
	for i := 1; i <= dragSteps; i++ {
		argv = append(argv, moveTo(Point{from.X + (to.X-from.X)*i/dragSteps, from.Y + (to.Y-from.Y)*i/dragSteps})...)
		argv = append(argv, "sleep", "0.015")
	}
	return append(argv, "mouseup", button)
}

// uses are the fields that each kind uses.
var uses = map[Kind]string{
	Move: "at", Click: "at button clicks hold", MouseDown: "at button", MouseUp: "at button", Drag: "at to button hold",
	Scroll: "at direction amount hold", Type: "text", Key: "keys", KeyDown: "keys", KeyUp: "keys", Wait: "duration_ms",
}

// check checks an action.
func (a *Action) check() *sandbox.Error {
	used, ok := uses[a.Kind]
	if !ok {
		return sandbox.InvalidField("type", "is %q, and must be move, click, mouse_down, mouse_up, drag, scroll, type, key, key_down, key_up or wait", a.Kind)
	}
	given := []struct {
		name string
		is   bool
	}{
		{"at", a.At != nil}, {"to", a.To != nil}, {"button", a.Button != ""}, {"clicks", a.Clicks != 0}, {"direction", a.Direction != ""}, {"amount", a.Amount != 0},
		{"text", a.Text != ""}, {"keys", a.Keys != ""}, {"hold", len(a.Hold) > 0}, {"duration_ms", a.Wait != 0},
	}
	for _, g := range given {
		needed := g.name == "text" && a.Kind == Type || g.name == "keys" && used == "keys" || g.name == "to" && a.Kind == Drag || g.name == "at" && (a.Kind == Drag || a.Kind == Move)
		if g.is && !strings.Contains(" "+used+" ", " "+g.name+" ") {
			return sandbox.InvalidField(g.name, "is not for the action %s", a.Kind)
		}
		if needed && !g.is {
			return sandbox.InvalidField(g.name, "is required for the action %s", a.Kind)
		}
	}
	return a.checkValues()
}

// checkValues checks the values of the fields.
func (a *Action) checkValues() *sandbox.Error {
	for name, p := range map[string]*Point{"at": a.At, "to": a.To} {
		if p != nil && (p.X < 0 || p.X >= MaxSide || p.Y < 0 || p.Y >= MaxSide) {
			return sandbox.InvalidField(name, "has coordinates that are not 0 to %d", MaxSide-1)
		}
	}
	switch {
	case buttons[a.Button] == "":
		return sandbox.InvalidField("button", "must be left, middle or right")
	case a.Clicks < 0 || a.Clicks > 3:
		return sandbox.InvalidField("clicks", "must be 1 to 3")
	case wheel[a.Direction] == "":
		return sandbox.InvalidField("direction", "must be up, down, left or right")
	case a.Amount < 0 || a.Amount > 100:
		return sandbox.InvalidField("amount", "must be 1 to 100")
	case len(a.Text) > MaxText:
		return sandbox.InvalidField("text", "must have at most %d bytes", MaxText)
	case !utf8.ValidString(a.Text):
		return sandbox.InvalidField("text", "is not UTF-8")
	case strings.ContainsFunc(a.Text, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }):
		return sandbox.InvalidField("text", "has control characters; use the action key for keys")
	case a.Wait < 0 || a.Wait > 10*time.Second:
		return sandbox.InvalidField("duration_ms", "must be 1 to 10000")
	case len(a.Hold) > 4:
		return sandbox.InvalidField("hold", "must be at most 4 keys")
	}
	for _, key := range a.Hold {
		if !validKey().MatchString(key) {
			return sandbox.InvalidField("hold", "%.64q is not the name of a key, such as shift", key)
		}
	}
	if a.Keys != "" {
		return checkKeys(a.Keys)
	}
	return nil
}

var validKey = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_]{1,32}$`) })

func checkKeys(keys string) *sandbox.Error {
	all := strings.Fields(keys)
	if len(all) == 0 || len(all) > maxCombinations {
		return sandbox.InvalidField("keys", "must be 1 to %d combinations, such as ctrl+l", maxCombinations)
	}
	for _, combination := range all {
		for _, key := range splitKeys(combination) {
			if _, named := punctuation[key]; !named && !validKey().MatchString(key) {
				return sandbox.InvalidField("keys", "%.64q is not a combination of keys, such as ctrl+l or Return", combination)
			}
		}
	}
	return nil
}

// splitKeys splits a combination at its plus signs. A last plus sign is the key.
func splitKeys(combination string) []string {
	if rest, ok := strings.CutSuffix(combination, "+"); ok {
		rest = strings.TrimSuffix(rest, "+")
		if rest == "" {
			return []string{"+"}
		}
		return append(strings.Split(rest, "+"), "+")
	}
	return strings.Split(combination, "+")
}

func combinationName(combination string) string {
	keys := splitKeys(combination)
	for i := range keys {
		keys[i] = keyName(keys[i])
	}
	return strings.Join(keys, "+")
}

// aliases are common names of keys that X11 calls otherwise.
var aliases = map[string]string{
	"enter": "Return", "return": "Return", "esc": "Escape", "escape": "Escape", "tab": "Tab", "space": "space", "backspace": "BackSpace",
	"delete": "Delete", "del": "Delete", "insert": "Insert", "home": "Home", "end": "End", "pageup": "Prior", "page_up": "Prior", "pagedown": "Next", "page_down": "Next",
	"up": "Up", "down": "Down", "left": "Left", "right": "Right", "arrowup": "Up", "arrowdown": "Down", "arrowleft": "Left", "arrowright": "Right",
	"ctrl": "ctrl", "control": "ctrl", "alt": "alt", "option": "alt", "shift": "shift", "cmd": "super", "command": "super", "meta": "super", "win": "super", "super": "super",
	"capslock": "Caps_Lock", "caps_lock": "Caps_Lock", "printscreen": "Print", "menu": "Menu",
}

// punctuation are the names of characters that are not letters.
var punctuation = map[string]string{
	"+": "plus", "-": "minus", "=": "equal", ",": "comma", ".": "period", "/": "slash", "\\": "backslash", ";": "semicolon", "'": "apostrophe",
	"`": "grave", "[": "bracketleft", "]": "bracketright", "*": "asterisk", "?": "question", "!": "exclam", "@": "at", "#": "numbersign", "<": "less", ">": "greater",
}

// keyName returns X11's name of a key.
func keyName(key string) string {
	if name, ok := punctuation[key]; ok {
		return name
	}
	lower := strings.ToLower(key)
	if name, ok := aliases[lower]; ok {
		return name
	}
	if len(key) > 1 && lower[0] == 'f' && strings.Trim(lower[1:], "0123456789") == "" {
		return strings.ToUpper(key)
	}
	return key
}
