// Package template builds the templates of E2B's clients. A template is an image that the workspace
// has built: its name is the id of the template, and its image tags are the tags of the template,
// with "latest" for the tag "default". The steps of a template become a Dockerfile, and the files
// that clients upload for them become its context. The contract is in E2B's client, in
// src/template/buildApi.ts.
package template
