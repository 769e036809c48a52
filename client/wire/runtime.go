package wire

import "time"

// Runtime is a built-in image with a description for people.
type Runtime struct {
	ID           string       `json:"id" doc:"Identifier of its image."`
	Name         string       `json:"name" doc:"Passed to create as image." example:"node:lts"`
	Image        string       `json:"image" doc:"Whole reference of its image." example:"modbox/node:lts"`
	Description  string       `json:"description" doc:"What is in it."`
	IconURL      string       `json:"icon_url,omitempty" doc:"Address of the project's icon."`
	Color        string       `json:"color,omitempty" doc:"The project's colour." example:"#5FA04E"`
	URL          string       `json:"url,omitempty" doc:"Address of the project."`
	Tags         []string     `json:"tags" nullable:"false" doc:"What it is good for."`
	Requirements Requirements `json:"requirements" doc:"What a sandbox needs to be of use."`
	Readme       string       `json:"readme,omitempty" doc:"More about it, in Markdown."`
	Built        bool         `json:"built" doc:"It is here. Otherwise its first use builds it, which takes a minute or so, or pulls it."`
	Source       string       `json:"source,omitempty" doc:"The reference in a registry from which its first use pulls it; absent for a runtime that is built here." example:"docker.io/library/ubuntu:24.04"`
	Missing      string       `json:"missing,omitempty" doc:"What keeps the server from having it; absent when nothing is known before its first use."`
	Digest       string       `json:"digest,omitempty" doc:"Content address of its root file system; absent when it is not built."`
	SizeBytes    int64        `json:"size_bytes" doc:"Size of its root file system; 0 when it is not built."`
	CreatedAt    *time.Time   `json:"created_at,omitempty" doc:"When it was first built; absent when it is not."`
}

// Requirements are the least resources for a useful sandbox of a runtime.
type Requirements struct {
	Memory  string `json:"memory,omitempty" doc:"Memory." example:"256Mi"`
	CPU     string `json:"cpu,omitempty" doc:"CPU." example:"250m"`
	Disk    string `json:"disk,omitempty" doc:"What it may write." example:"512Mi"`
	Network bool   `json:"network" doc:"It is of little use without a network."`
}
