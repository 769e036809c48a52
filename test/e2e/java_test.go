package e2e_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// TestJava runs Java in a sandbox with the JDK that the error of another names as missing. Java keeps its state over an interruption, a pause and
// a fork. An image without a JDK refuses it with the package to install.
func TestJava(t *testing.T) {
	_, args := mirrors(t)
	s := testserver.StartInstalled(t, "java", args...)
	without := s.MustCreate(client.CreateOptions{Image: "modbox/base"})
	var refused *client.Error
	_, err := s.Sandboxes.RunCode(t.Context(), without.ID, "1", client.CodeOptions{Language: "java"})
	if !errors.As(err, &refused) || refused.Code != client.Unsupported || !strings.Contains(refused.Message, "default-jdk-headless") {
		t.Errorf("without a JDK: %v, want it refused with the package", err)
	}

	sb := s.MustCreate(client.CreateOptions{Image: "modbox/base", AptPackages: []string{"default-jdk-headless"}, WaitUpTo: 10 * time.Minute})
	c := cells{t, s.Client, sb.ID}
	c.want("java", "int x = 20;\nint twice(int a) { return 2 * a; }\nSystem.out.println(\"é \" + twice(x));", "é 40\n")
	if res, err := c.runCode(t.Context(), "Stream.of(1, x).toList()", client.CodeOptions{Language: "java"}); err != nil || len(res.Results) != 1 || res.Results[0].Data["text/plain"] != "[1, 20]" {
		t.Errorf("value = %+v, %v, want [1, 20]", res, err)
	}
	if res, err := c.runCode(t.Context(), "twice(1) / 0", client.CodeOptions{Language: "java"}); err != nil || res.Status != "error" || res.Error.Name != "java.lang.ArithmeticException" {
		t.Errorf("failure = %+v, %v, want an ArithmeticException", res, err)
	}
	status := "" // the loop prints, because code that is not yet analysed cannot be interrupted
	err = c.stream(t.Context(), "while (true) if (x == 20) { x++; System.out.println(\"on\"); }", client.CodeOptions{Language: "java"}, func(ev client.CodeEvent) error {
		status += ev.Status
		if ev.Type == "stdout" {
			return s.Sandboxes.Contexts.Interrupt(t.Context(), sb.ID, "java")
		}
		return nil
	})
	if err != nil || status != "interrupted" {
		t.Errorf("an interrupt of endless code: %q, %v", status, err)
	}
	c.want("java", "System.out.println(x);", "21\n")
	if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	c.want("java", "System.out.println(twice(3));", "6\n")
	forks, err := s.Sandboxes.Fork(t.Context(), sb.ID, client.ForkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cells{t, s.Client, forks[0].Sandbox.ID}.want("java", "System.out.println(twice(4));", "8\n")
}
