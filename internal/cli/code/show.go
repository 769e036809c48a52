package code

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/modbox/modbox/client/sandbox"
	"github.com/modbox/modbox/internal/cli/base"
)

// images are the formats that are written to files, in the order of preference.
var images = []struct {
	extension string
	content   func(*sandbox.CodeOutput) []byte
}{
	{"png", (*sandbox.CodeOutput).PNG},
	{"jpeg", (*sandbox.CodeOutput).JPEG},
	{"svg", func(o *sandbox.CodeOutput) []byte { return []byte(o.SVG()) }},
	{"pdf", (*sandbox.CodeOutput).PDF},
}

// colours are the escape sequences in tracebacks.
var colours = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("\x1b\\[[0-9;]*m") })

// shower prints the output and values of code.
type shower struct {
	stdout, stderr io.Writer
	// dir is the directory of images; "" makes a temporary directory, or with keep false leaves them.
	dir  string
	keep bool
	n    int   // images so far
	err  error // the first failure
}

// output returns the options that print the output and values of code.
func (s *shower) options(o sandbox.CodeOptions) sandbox.CodeOptions {
	o.OnStdout = func(text string) { s.print(s.stdout, text) }
	o.OnStderr = func(text string) { s.print(s.stderr, text) }
	o.OnResult = s.value
	return o
}

func (s *shower) print(w io.Writer, text string) {
	if _, err := io.WriteString(w, text); err != nil && s.err == nil {
		s.err = err
	}
}

// value prints a value: the path of an image, else its text.
func (s *shower) value(o sandbox.CodeOutput) {
	for _, f := range images {
		content := f.content(&o)
		if len(content) == 0 || s.dir == "" && !s.keep {
			continue
		}
		path, err := s.save(f.extension, content)
		if err != nil {
			if s.err == nil {
				s.err = err
			}
			return
		}
		s.print(s.stdout, path+"\n")
		return
	}
	if text := o.Text(); text != "" {
		s.print(s.stdout, strings.TrimSuffix(text, "\n")+"\n")
	}
}

// save writes an image to a new file and returns its path.
func (s *shower) save(extension string, content []byte) (string, error) {
	if s.dir == "" {
		dir, err := os.MkdirTemp("", "modbox-images-")
		if err != nil {
			return "", err
		}
		s.dir = dir
	}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return "", err
	}
	for {
		s.n++
		path := filepath.Join(s.dir, fmt.Sprintf("image-%d.%s", s.n, extension))
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if os.IsExist(err) {
			continue
		}
		if err != nil {
			return "", err
		}
		if _, err = f.Write(content); err != nil {
			_ = f.Close()
			return "", err
		}
		return path, f.Close()
	}
}

// end prints how code ended, unless it succeeded.
func (s *shower) end(res *sandbox.CodeResult) {
	if res.Restarted {
		s.print(s.stderr, "The interpreter was started again: the state of earlier code is lost.\n")
	}
	if res.LimitExceeded != "" {
		s.print(s.stderr, "The code exceeded its limit: "+plain(res.LimitExceeded)+".\n")
	}
	switch e := res.Error; {
	case e != nil && len(e.Traceback) > 0:
		s.print(s.stderr, plain(strings.Join(e.Traceback, "\n"))+"\n")
	case e != nil:
		s.print(s.stderr, plain(e.Error())+"\n")
	case res.Status != "ok":
		s.print(s.stderr, "The code ended: "+plain(res.Status)+"\n")
	}
	if res.Truncated {
		s.print(s.stderr, "There was more output, which was dropped.\n")
	}
}

// plain returns text for a terminal without colours and other control characters.
func plain(text string) string {
	return base.Clean(strings.ReplaceAll(colours().ReplaceAllString(text, ""), "\t", "    "))
}
