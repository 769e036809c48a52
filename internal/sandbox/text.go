package sandbox

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// CheckText accepts least to most characters that people see as they are: with one at
// least that shows, unless there are none, and without those that control a terminal, end
// a line, or change the order in which the others are read. So no two names look the same
// because of them, and what is said about one is not taken for something else.
// Errors: Invalid, naming the field.
func CheckText(field, text string, least, most int) error {
	n := utf8.RuneCountInString(text)
	switch {
	case !utf8.ValidString(text):
		return InvalidField(field, "must be valid UTF-8")
	case n < least || n > most:
		return InvalidField(field, "must be %d to %d characters long, and has %d", least, most, n)
	case strings.ContainsFunc(text, unseen):
		return InvalidField(field, "must not hold control characters, or such as change the direction of the text")
	case n > 0 && !strings.ContainsFunc(text, func(r rune) bool { return unicode.IsGraphic(r) && !unicode.IsSpace(r) }):
		return InvalidField(field, "must not consist of spaces")
	}
	return nil
}

// unseen reports whether a character does something to the others instead of being seen.
func unseen(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp)
}
