// Package build makes images from Dockerfiles.
//
// BuildKit's parser reads a Dockerfile. Build refuses unsupported instructions, with their line,
// before anything runs. Then it executes the stages that the target needs, in order. Each RUN gets
// a work box of its own (package workbox), which is isolated like any sandbox; the files that it
// changes are a layer. COPY, ADD and a WORKDIR that does not exist need no box: package image makes
// their layers from names in memory and contents in a file, so nothing of a context is ever
// unpacked on the host. The other instructions only change the configuration of the image.
//
// The key of a cached layer consists of the workspace, the digest below it, the instruction with
// all inputs, and the contents of the files that it copies. So an unchanged Dockerfile over
// unchanged files makes no layer again, and no workspace learns what another has built.
//
// A build ends when its client disconnects. The next server removes the work boxes and temporary
// files of a killed server. Finished layers stay in the cache.
package build
