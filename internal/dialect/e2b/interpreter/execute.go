package interpreter

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/codescan"
	"github.com/modbox/modbox/internal/kernelapi"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// runMax bounds the execution of code: the clients have time limits of their own.
	runMax = sandbox.TTLMax
	// environMax bounds a change of the environment.
	environMax = time.Minute
	// silence is the time after which a stream sends a sign of life.
	silence = 5 * time.Second
)

// line is a line of the answer to an execute.
type line map[string]any

func (s *Server) execute(w http.ResponseWriter, r *http.Request, v *visit) error {
	ok, err := s.credentials.Check(accessKind, v.sb.ID, r.Header.Get(tokenHeader))
	if err == nil && !ok {
		err = sandbox.Errorf(sandbox.Unauthenticated, "this sandbox wants its access token in %s", tokenHeader)
	}
	if err != nil {
		return err
	}
	in, err := decode[struct {
		Code     string            `json:"code"`
		Context  string            `json:"context_id"`
		Language string            `json:"language"`
		Env      map[string]string `json:"env_vars"`
	}](w, r)
	switch {
	case err != nil:
		return err
	case in.Context != "" && in.Language != "":
		return sandbox.InvalidField("", "Only one of context_id or language can be provided")
	case len(in.Code) > kernelapi.MaxCode:
		return sandbox.InvalidField("code", "must have at most %d bytes", kernelapi.MaxCode)
	case in.Context == "":
		in.Context = defaultID + languageOf(in.Language)
	}
	ctx := r.Context()
	c, err := s.ensure(ctx, v, in.Context)
	if err != nil {
		return err
	}
	if err := sandbox.CheckEnv(in.Env); err != nil {
		return err
	}
	if len(in.Env) > 0 {
		set, unset, err := environ(c.Language, in.Env, v.sb.Env)
		if err != nil {
			return err
		}
		if err := s.quietly(ctx, v, c.ID, set); err != nil {
			return err
		}
		defer func() {
			// The variables are also removed after the client disconnected.
			late, cancel := context.WithTimeout(context.WithoutCancel(ctx), environMax)
			defer cancel()
			_ = s.quietly(late, v, c.ID, unset) // fails only when the interpreter, and its environment, is gone
		}()
	}
	return s.stream(w, r, v, kernelapi.Run{Context: c.ID, Code: in.Code, Timeout: runMax})
}

// quietly runs code whose output nobody sees.
func (s *Server) quietly(ctx context.Context, v *visit, id, code string) error {
	run, err := s.code.Start(codescan.Exempt(audit.WithEntry(ctx, nil)), v.caller, v.ref, kernelapi.Run{Context: id, Code: code, Timeout: environMax})
	if err != nil {
		return err
	}
	defer run.Close()
	for {
		if _, err := run.Next(); err != nil {
			if err == io.EOF {
				return nil
			}
			return err
		}
	}
}

// stream runs code and sends its output as it comes.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, v *visit, spec kernelapi.Run) error {
	run, err := s.code.Start(r.Context(), v.caller, v.ref, spec)
	if err != nil {
		return err
	}
	defer run.Close() // interrupts code whose client is gone
	audit.FromContext(r.Context()).Start()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	out := edge.TalkASCII(w, silence) // the clients ignore a line of another type; the JavaScript client needs ASCII
	defer out.Stop()
	for {
		ev, err := run.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			edge.Log(r.Context(), err)
			panic(http.ErrAbortHandler) // the clients would take the part for the whole
		}
		if send(out, &ev) != nil {
			return nil
		}
	}
}

// send sends the lines for an event.
func send(out *edge.Talker, ev *kernelapi.Event) error {
	for _, l := range lines(ev) {
		if err := out.Send(l); err != nil {
			return err
		}
	}
	return nil
}

// lines returns the lines for an event.
func lines(ev *kernelapi.Event) []line {
	switch ev.Type {
	case kernelapi.Stdout, kernelapi.Stderr:
		return []line{{"type": ev.Type, "text": ev.Text, "timestamp": time.Now().UTC()}}
	case kernelapi.Result:
		if ev.Update {
			return nil // the clients would show it twice
		}
		return []line{result(ev)}
	case kernelapi.Failure:
		return []line{{"type": "error", "name": ev.Name, "value": ev.Value, "traceback": strings.Join(ev.Traceback, "\n")}}
	case kernelapi.End:
		var out []line
		if ev.Status == kernelapi.Lost {
			out = append(out, line{"type": "error", "name": "KernelDied", "value": "the interpreter ended or was restarted", "traceback": ""})
		}
		return append(out, line{"type": "number_of_executions", "execution_count": ev.ExecutionCount}, line{"type": "end_of_execution"})
	}
	return nil
}

// formats are the dialect's names of MIME types.
var formats = map[string]string{
	"text/plain": "text", "text/html": "html", "text/markdown": "markdown", "image/svg+xml": "svg", "image/png": "png", "image/jpeg": "jpeg",
	"application/pdf": "pdf", "text/latex": "latex", "application/json": "json", "application/javascript": "javascript",
	"application/vnd.modbox.chart+json": "chart", "application/vnd.dataresource+json": "data",
}

// result returns the line for a value. Formats without a name of their own are in extra.
func result(ev *kernelapi.Event) line {
	l, extra := line{"type": "result", "is_main_result": ev.Main}, map[string]json.RawMessage{}
	for mime, value := range ev.Data {
		name, known := formats[mime]
		switch {
		case !known:
			extra[mime] = value
		case name == "text":
			l[name] = unquoted(value)
		case name == "data":
			if columns, ok := columnsOf(value); ok {
				l[name] = columns
			}
		default:
			l[name] = value
		}
	}
	if len(extra) > 0 {
		l["extra"] = extra
	}
	return l
}

// unquoted returns a text without the quotes around it, if it is a text in quotes as a whole.
func unquoted(value json.RawMessage) any {
	var text string
	if json.Unmarshal(value, &text) != nil {
		return value
	}
	if n := len(text); n >= 2 && text[0] == text[n-1] && (text[0] == '\'' || text[0] == '"') {
		return text[1 : n-1]
	}
	return text
}

// columnsOf returns the columns of a table by name: the clients know no other form of a table.
func columnsOf(value json.RawMessage) (map[string][]json.RawMessage, bool) {
	var table struct {
		Schema struct {
			Fields []struct {
				Name any `json:"name"`
			} `json:"fields"`
		} `json:"schema"`
		PrimaryKey []any                        `json:"primaryKey"`
		Data       []map[string]json.RawMessage `json:"data"`
	}
	if json.Unmarshal(value, &table) != nil {
		return nil, false
	}
	out := map[string][]json.RawMessage{}
	for _, f := range table.Schema.Fields {
		name, ok := f.Name.(string)
		if !ok || name == "index" {
			continue
		}
		column := make([]json.RawMessage, len(table.Data))
		for i, row := range table.Data {
			if column[i] = row[name]; column[i] == nil {
				column[i] = json.RawMessage("null")
			}
		}
		out[name] = column
	}
	return out, true
}
