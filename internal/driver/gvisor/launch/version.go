package launch

import (
	"debug/buildinfo"
	"fmt"
)

// Version returns the version of gVisor from which an executable was built.
func Version(path string) (string, error) {
	const module = "gvisor.dev/gvisor"
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("version of %s: %w", path, err)
	}
	for _, dep := range info.Deps {
		if dep.Path != module {
			continue
		}
		if dep.Replace != nil {
			dep = dep.Replace
		}
		return dep.Version, nil
	}
	return "", fmt.Errorf("version of %s: it does not contain %s", path, module)
}
