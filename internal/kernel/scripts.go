package kernel

import (
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"strings"
	"sync"
)

//go:generate go test -run ^TestScripts$ . -update

// packed is the files of the folder scripts, by name and without comments, as compressed JSON: the agent is to stay small.
//
//go:embed scripts.json.gz
var packed string

// scripts returns the programs that kernels run, by the name of their file.
var scripts = sync.OnceValues(func() (files map[string]string, err error) {
	r, err := gzip.NewReader(strings.NewReader(packed))
	if err != nil {
		return nil, err
	}
	err = json.NewDecoder(r).Decode(&files)
	return files, err
})
