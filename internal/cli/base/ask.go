package base

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"
)

// Interactive reports whether standard input is a terminal.
func (env *Env) Interactive() bool {
	f, ok := env.Stdin.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Ask prints the prompt on standard error and reads a line, without the spaces around it.
func (env *Env) Ask(prompt string) (string, error) {
	fmt.Fprint(env.Stderr, prompt)
	line, err := env.readLine()
	return strings.TrimSpace(line), err
}

// readLine reads a single line from standard input and leaves the rest unread.
func (env *Env) readLine() (string, error) {
	var line []byte
	for b := make([]byte, 1); ; {
		n, err := env.Stdin.Read(b)
		switch {
		case n == 1 && b[0] == '\n', err != nil && len(line) > 0:
			return strings.TrimSuffix(string(line), "\r"), nil
		case n == 1:
			line = append(line, b[0])
		case err != nil:
			return "", fmt.Errorf("read standard input: %w", err)
		}
	}
}

// AskPassword is Ask without echo.
func (env *Env) AskPassword(prompt string) (string, error) {
	f, ok := env.Stdin.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return env.readLine()
	}
	fmt.Fprint(env.Stderr, prompt)
	b, err := term.ReadPassword(int(f.Fd()))
	fmt.Fprintln(env.Stderr)
	if err != nil {
		return "", fmt.Errorf("read password: %w", err)
	}
	return string(b), nil
}

// Agreed reports whether the user agrees to the question; the flag --yes agrees. It asks on a
// terminal only; a program agrees by running the command.
func (env *Env) Agreed(yes bool, question string) bool {
	return yes || !env.Interactive() || env.Confirm(question)
}

// Confirm asks the question on standard error; only "y" and "yes" agree.
func (env *Env) Confirm(question string) bool {
	fmt.Fprint(env.Stderr, question+" [y/N] ")
	line, _ := bufio.NewReader(env.Stdin).ReadString('\n') // without an answer it is a no
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true
	}
	return false
}
