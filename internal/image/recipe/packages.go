package recipe

import "strings"

// packagesPath is the file in an image that lists its packages, and packagesMax bounds the list.
const (
	packagesPath = "/usr/share/modbox/packages.tsv"
	packagesMax  = 4 << 20
)

// Package is a package in an image.
type Package struct {
	Source  string `json:"source"` // "debian", "npm" or "pip"
	Name    string `json:"name"`
	Version string `json:"version"`
	Arch    string `json:"arch"`
}

// parsePackages reads the list that finish.sh writes: one package per line, its fields
// separated by tabs. It skips other lines, because the image wrote the list.
func parsePackages(list string) []Package {
	var packages []Package
	for line := range strings.Lines(list) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) == 4 {
			packages = append(packages, Package{Source: f[0], Name: f[1], Version: f[2], Arch: f[3]})
		}
	}
	return packages
}
