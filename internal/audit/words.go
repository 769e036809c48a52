package audit

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// wordsMax bounds the words by which a record is found, wordMax the bytes of each.
	wordsMax, wordMax = 100, 64
	// searchWordsMax bounds the words of a search.
	searchWordsMax = 8
	// prefixMin is the number of bytes from which on a word of a search also finds longer words. Too many words begin
	// with a shorter one.
	prefixMin = 3
)

// Words returns the words by which a search finds a record, each once: of its action, outcome, address, object, command, details
// and outputs, in this order, at most wordsMax. A record that cannot be read has none.
func Words(record []byte) []string {
	var r Record
	if json.Unmarshal(record, &r) != nil {
		return nil
	}
	texts := append([]string{r.Action, r.Outcome, r.Address, r.ObjectKind, r.ObjectName}, r.Command...)
	for _, name := range slices.Sorted(maps.Keys(r.Details)) {
		texts = append(texts, r.Details[name])
	}
	var words []string
	for _, text := range append(texts, r.Stdout, r.Stderr) {
		for word := range wordsOf(text) {
			if len(words) == wordsMax {
				return words
			}
			if !slices.Contains(words, word) {
				words = append(words, word)
			}
		}
	}
	return words
}

// wordsOf yields the runs of letters and digits in a text, in lower case, each cut to wordMax bytes.
func wordsOf(text string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
			word = strings.ToLower(word)
			if len(word) > wordMax {
				word = strings.ToValidUTF8(word[:wordMax], "")
			}
			if !yield(word) {
				return
			}
		}
	}
}

// Wanted is a word of a search.
type Wanted struct {
	Word string
	// Prefix says that longer words which begin with it are meant as well.
	Prefix bool
}

// WantedWords returns the words of a search. A record matches if it has all of them. Errors: Invalid, naming search.
func WantedWords(search string) ([]Wanted, error) {
	var list []Wanted
	for word := range wordsOf(search) {
		if w := (Wanted{Word: word, Prefix: len(word) >= prefixMin}); !slices.Contains(list, w) {
			list = append(list, w)
		}
	}
	if len(list) == 0 || len(list) > searchWordsMax {
		return nil, sandbox.InvalidField("search", "must have 1 to %d words of letters or digits", searchWordsMax)
	}
	return list, nil
}
