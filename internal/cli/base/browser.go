package base

import (
	"cmp"
	"os/exec"
)

// HasBrowser reports whether this machine can show a browser.
func (env *Env) HasBrowser() bool {
	return env.Getenv("DISPLAY") != "" || env.Getenv("WAYLAND_DISPLAY") != "" || env.Getenv("BROWSER") != ""
}

// Browse opens a page in the user's browser and does not wait. The browser outlives this command.
func (env *Env) Browse(page string) error {
	cmd := exec.Command(cmp.Or(env.Getenv("BROWSER"), "xdg-open"), page)
	cmd.Env = env.Environ
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // after an error the user opens the page by hand
	return nil
}
