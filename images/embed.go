// Package images carries the recipes of the built-in images inside the binary,
// so that one file is all an installation needs. docs/images.md describes them.
package images

import "embed"

// FS holds one directory per recipe; see package image for the files of a recipe.
//
//go:embed amp base bun chromium claude-code code-exec data desktop node-latest node-lts opencode python python-3.14 sandbox sandbox-lite ubuntu
var FS embed.FS
