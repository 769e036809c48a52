package interpreter

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/kernelapi"
)

func TestResult(t *testing.T) {
	got, err := json.Marshal(result(&kernelapi.Event{Main: true, Data: kernelapi.Formats{
		"text/plain": json.RawMessage(`"'it'"`), "image/png": json.RawMessage(`"AA=="`), "application/x-own": json.RawMessage(`1`),
		"application/vnd.dataresource+json": json.RawMessage(`{"schema":{"fields":[{"name":"index"},{"name":"a"},{"name":1}]},"data":[{"index":0,"a":1},{"index":1}]}`),
	}}))
	if err != nil {
		t.Fatal(err)
	}
	var have, want any
	if err := json.Unmarshal(got, &have); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(`{"type":"result","is_main_result":true,"text":"it","png":"AA==","data":{"a":[1,null]},"extra":{"application/x-own":1}}`), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
}

func TestUnquoted(t *testing.T) {
	for in, want := range map[string]any{`"'a'"`: "a", `"\"a\""`: "a", `"'"`: "'", `"a"`: "a", `"'a\""`: `'a"`, `""`: ""} {
		if got := unquoted(json.RawMessage(in)); got != want {
			t.Errorf("unquoted(%s) = %v, want %v", in, got, want)
		}
	}
}

func TestEnviron(t *testing.T) {
	set, unset, err := environ("bash", map[string]string{"A": "it's", "B": "2"}, map[string]string{"B": "own"})
	if err != nil || set != "export 'A=it'\\''s'\nexport 'B=2'\n" || unset != "unset 'A'\nexport 'B=own'\n" {
		t.Errorf("environ = %q, %q, %v", set, unset, err)
	}
	if _, _, err := environ("r", map[string]string{"A": "1"}, nil); err == nil {
		t.Error("environ of a language without statements succeeds")
	}
}

func TestASCII(t *testing.T) {
	got, err := json.Marshal(ascii(line{"text": "a€\"😀<\n\u2028"}))
	if want := `{"text":"a\u20ac\"\ud83d\ude00\u003c\n\u2028"}`; err != nil || string(got) != want {
		t.Errorf("ascii = %s, %v, want %s", got, err, want)
	}
}
