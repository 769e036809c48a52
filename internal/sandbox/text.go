package sandbox

import (
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"
)

// CheckText accepts least to most characters that people see unchanged: at least one visible
// character, unless the text is empty, and no characters that control a terminal, end a line, or
// change the reading order of others. So no two different names look the same because of such
// characters. Errors: Invalid, naming the field.
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

// Excerpt makes a caller's text fit for a message: at most 100 characters.
func Excerpt(s string) string {
	const most = 100
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

// OneLine makes a message fit for storing and showing: at most MessageMax bytes of valid
// UTF-8, without control characters.
func OneLine(s string) string {
	s = strings.ToValidUTF8(s[:min(len(s), MessageMax)], "")
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
}

// Explain returns a message for an event or an answer: what happened, and the public part
// of the error that is its reason.
func Explain(what string, reason error) string {
	var public *Error
	if !errors.As(reason, &public) || public.Code == Internal {
		return OneLine(what)
	}
	if public.Field != "" {
		return OneLine(what + ": " + public.Field + ": " + public.Message)
	}
	return OneLine(what + ": " + public.Message)
}

// IsText reports whether s is UTF-8 without NUL, which every program takes.
func IsText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// FieldOf names the entry of a field that holds a map. The key itself may be invalid, so it
// is cut to 64 bytes and cleaned.
func FieldOf(field, key string) string {
	const most = 64
	if len(key) > most {
		key = key[:most] + "…"
	}
	return field + "." + strings.ToValidUTF8(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, key), "?")
}
